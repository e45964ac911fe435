"""Runs jobs in sandboxed worker processes."""

from engine.executor.jobs import Job, JobLimits, JobOutput, JobResult
from engine.executor.local import Executor, LocalExecutor

__all__ = ["Executor", "Job", "JobLimits", "JobOutput", "JobResult", "LocalExecutor"]
