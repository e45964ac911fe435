"""Open-loop load from a process of its own: it asks at its own rate, whether or not the server keeps up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from dataclasses import asdict, dataclass

_GENERATOR = "benchmarks.faults.generator"


@dataclass(frozen=True)
class Plan:
    """What to send: `rate` requests a second for `seconds`, each key in turn and from an address of its own.

    With `clients`, that many ask one request after the other instead, and the rate is what comes of it.
    """

    url: str
    keys: tuple[str, ...]
    file: str  # the path of what to convert
    seconds: float
    rate: float = 0.0
    clients: int = 0


@dataclass(frozen=True)
class Heard:
    """An answer; times in seconds of the machine's clock. Status 0 where none came."""

    status: int
    asked: float
    came: float
    retry_after: str = ""

    @property
    def seconds(self) -> float:
        return self.came - self.asked


async def carry_out(plan: Plan) -> list[Heard]:
    """The plan's answers, in a process of their own."""
    command = (sys.executable, "-m", _GENERATOR)
    process = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = await process.communicate(json.dumps(asdict(plan)).encode())
    return [Heard(*row) for row in json.loads(out)]
