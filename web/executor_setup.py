"""The processes that jobs run in, with the sandbox that the settings ask for."""

from __future__ import annotations

from config.settings import Settings
from engine import sandbox
from engine.errors import ConversionError
from engine.executor import LocalExecutor


class SandboxIncomplete(RuntimeError):
    """The sandbox is required, and does not hold on this system; `str(error)` tells what is missing."""


def local_executor(settings: Settings, workers: int) -> LocalExecutor:
    """The executor, which is the caller's to start and to close."""
    return LocalExecutor(workers, sandbox.ALWAYS if settings.sandbox == "off" else sandbox.LAYERS)


async def examine(settings: Settings, executor: LocalExecutor) -> sandbox.SandboxReport:
    """What processes find out about their sandbox. Raises SandboxIncomplete where that is less than required."""
    try:
        findings = await executor.examine()
    except ConversionError as error:
        raise SandboxIncomplete(f"the sandbox cannot be examined: {error}") from error
    if settings.sandbox == "required" and not findings.complete:
        missing = ", ".join(findings.missing)
        raise SandboxIncomplete(f"the sandbox is required, and this is missing: {missing}; see 'convertd doctor'")
    return findings
