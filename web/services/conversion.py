"""Conversions for clients: the one chargeable door, through which all of them go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

from config.tariff import CREDITS_PER_CONVERSION
from engine.conversions import Options
from engine.executor import Executor, Input, Job, Limits
from engine.formats import FileFormat
from engine.pipeline import Warned
from engine.planner import Plan
from engine.registry import Registry
from storage.usage import Use
from web.services.accounts import Account
from web.services.charges import Charge, Charges
from web.services.filenames import renamed
from web.services.memory import needed
from web.services.repeats import Repeatable, Repeats, Replayed
from web.services.results import Kept, Results
from web.services.turns import Turns


@dataclass(frozen=True)
class Upload:
    """A file that a client sent, lying in the folder of its request. Its name is the client's: not to be trusted."""

    path: Path
    filename: str
    size: int


@dataclass(frozen=True)
class Order:
    """What a client wants: whether to `keep` the result, and what to know the request by should it come again."""

    account: Account
    upload: Upload
    target: str
    options: Options = Options()
    keep: bool = False
    repeatable: Repeatable | None = None


@dataclass(frozen=True)
class Converted:
    """A result, at `path`; `kept` where it can be fetched later. `balance` is what the account has left."""

    path: Path
    filename: str
    source: FileFormat
    target: FileFormat
    original_size: int
    size: int
    seconds: float
    warnings: tuple[Warned, ...]
    kept: Kept | None = None
    balance: int = 0

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
    """Identifies, plans, holds a credit, waits for a turn, runs, and settles; or gives the credit back."""

    def __init__(
        self,
        registry: Registry,
        executor: Executor,
        turns: Turns,
        charges: Charges,
        repeats: Repeats,
        results: Results,
        limits: Limits = Limits(),
    ) -> None:
        self._registry = registry
        self._executor = executor
        self._turns = turns
        self._charges = charges
        self._repeats = repeats
        self._results = results
        self._limits = limits

    async def convert(self, order: Order) -> Converted | Replayed:
        """Converts the upload. Raises ConversionError, StorageError, or RateLimited where no turn came.

        Cancelling kills the job. Whatever happens before the charge is settled, nothing is charged.
        """
        self._turns.check(order.account.id, order.account.tier.max_concurrent)
        source = await asyncio.to_thread(self._registry.identify, order.upload.path)
        plan = self._registry.plan([source], order.target)
        claim = None
        if order.repeatable is not None:
            parameters = {"target": plan.target.name, **asdict(order.options)}
            begun = await self._repeats.claim(order.repeatable, order.upload.path, parameters)
            if isinstance(begun, Replayed):
                return begun
            claim = begun
        use = Use("convert", source.name, plan.target.name, order.upload.size)
        async with self._charges.charged(order.account.id, CREDITS_PER_CONVERSION, use, claim) as charge:
            account, memory = order.account, needed(source.name, plan.target.name, order.upload.size)
            async with self._turns.taken(account.id, account.tier.max_concurrent, memory=memory):
                converted = await self._run(order, plan)
            return await self._settled(order, converted, charge)

    async def _run(self, order: Order, plan: Plan) -> Converted:
        extension = plan.target.extensions[0]
        output = order.upload.path.parent / "out" / f"result.{extension}"
        await asyncio.to_thread(output.parent.mkdir, mode=0o700, exist_ok=True)
        started = perf_counter()
        job = Job((Input(order.upload.path, plan.source.name),), output, plan.target.name, order.options)
        done = await self._executor.run(job, self._limits)
        return Converted(
            path=output,
            filename=renamed(order.upload.filename, extension),
            source=plan.source,
            target=plan.target,
            original_size=order.upload.size,
            size=done.size,
            seconds=perf_counter() - started,
            warnings=done.warnings,
        )

    async def _settled(self, order: Order, converted: Converted, charge: Charge) -> Converted:
        """The charge is final, and the result where it is to be, before the client hears of it."""
        if not order.keep and charge.claim is None:
            return replace(converted, balance=await charge.settle(converted.size))
        media_type = converted.target.media_type
        kept = await self._results.keep(
            order.account.id, converted.path, converted.filename, media_type, converted.size
        )
        converted = replace(converted, path=self._results.path(kept), kept=kept)
        try:
            return replace(converted, balance=await charge.settle(converted.size, converted.as_json(), kept.file_id))
        except BaseException:
            # A client that goes away while the charge is saved has paid for the result, and may come back for it.
            if not await charge.is_settled():
                await self._results.discard(kept)
            raise
