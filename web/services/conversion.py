"""Conversions for clients: the one door through which all of them go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from engine.conversions import Options
from engine.executor import Executor, Job, Limits
from engine.formats import FileFormat
from engine.pipeline import Warned
from engine.registry import Registry
from web.services.accounts import Account
from web.services.filenames import renamed
from web.services.turns import Turns


@dataclass(frozen=True)
class Upload:
    """A file that a client sent, lying in the folder of its request. Its name is the client's: not to be trusted."""

    path: Path
    filename: str
    size: int


@dataclass(frozen=True)
class Converted:
    """A result, in the folder of its request too."""

    path: Path
    filename: str
    source: FileFormat
    target: FileFormat
    original_size: int
    size: int
    seconds: float
    warnings: tuple[Warned, ...]

    def as_json(self) -> Mapping[str, Any]:
        """The fields of a conversion result, without where it is kept."""
        return {
            "input_format": self.source.name,
            "output_format": self.target.name,
            "original_size": self.original_size,
            "processed_size": self.size,
            "reduction_percent": round((1 - self.size / self.original_size) * 100, 1),
            "processing_time_ms": round(self.seconds * 1000),
            "warnings": [{"code": warned.code, "message": warned.message} for warned in self.warnings],
        }


class Conversions:
    """Identifies, plans, waits for a turn, and runs."""

    def __init__(self, registry: Registry, executor: Executor, turns: Turns, limits: Limits = Limits()) -> None:
        self._registry = registry
        self._executor = executor
        self._turns = turns
        self._limits = limits

    async def convert(self, account: Account, upload: Upload, target_name: str, options: Options) -> Converted:
        """Converts the upload. Raises ConversionError, or RateLimited where no turn came; cancelling kills the job."""
        source = await asyncio.to_thread(self._registry.identify, upload.path)
        plan = self._registry.plan(source, target_name)
        extension = plan.target.extensions[0]
        output = upload.path.parent / "out" / f"result.{extension}"
        async with self._turns.taken(account.id, account.tier.max_concurrent):
            await asyncio.to_thread(output.parent.mkdir, mode=0o700, exist_ok=True)
            started = perf_counter()
            job = Job(upload.path, source.name, output, plan.target.name, options)
            done = await self._executor.run(job, self._limits)
            seconds = perf_counter() - started
        return Converted(
            path=output,
            filename=renamed(upload.filename, extension),
            source=source,
            target=plan.target,
            original_size=upload.size,
            size=done.size,
            seconds=seconds,
            warnings=done.warnings,
        )
