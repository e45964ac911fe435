"""Runs tasks in sandboxed worker processes."""

from engine.executor.local import Executor, LocalExecutor
from engine.executor.tasks import Task, TaskLimits, TaskOutput, TaskResult

__all__ = ["Executor", "LocalExecutor", "Task", "TaskLimits", "TaskOutput", "TaskResult"]
