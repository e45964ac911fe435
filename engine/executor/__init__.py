"""Runs jobs in sandboxed worker processes."""

from engine.executor.jobs import Inspection, Job, JobLimits, JobResult
from engine.executor.local import Executor, LocalExecutor

__all__ = ["Executor", "Inspection", "Job", "JobLimits", "JobResult", "LocalExecutor"]
