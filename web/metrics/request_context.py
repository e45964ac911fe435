"""The properties of a request that handlers and services collect for the access log and the metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine.outcome import WarningRecord
from engine.planner import Plan
from web.api.headers import warning_codes

IN_PROCESS = "in_process"


@dataclass
class RequestContext:
    """Properties of one request. Contains no text of the client.

    `engine` names the external programs of the plan, or is `in_process`. `warnings` are codes, separated by commas.
    """

    request_id: str = ""
    input_format: str | None = None
    output_format: str | None = None
    engine: str | None = None
    warnings: str | None = None
    credits: int | None = None

    def set_plan(self, plan: Plan) -> None:
        """Sets the formats and the engine of the plan."""
        self.input_format, self.output_format = plan.source.name, plan.target.name
        self.engine = "+".join(sorted({Path(program).name for program in plan.programs})) or IN_PROCESS

    def add_credits(self, credits: int) -> None:
        """Adds to the credits charged for the request."""
        self.credits = (self.credits or 0) + credits

    def set_warnings(self, warnings: Iterable[WarningRecord]) -> None:
        """Sets the codes of the warnings, at most 10."""
        self.warnings = ",".join(warning_codes(warning.code for warning in warnings)) or None

    def fields(self) -> dict[str, object]:
        """The properties by name, for the log."""
        return dict(vars(self))
