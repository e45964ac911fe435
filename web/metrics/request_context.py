"""What becomes known of a request while it is worked on, for the log and the metrics."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from engine.executor import JobResult
from engine.planner import Plan

IN_PROCESS = "in_process"
_MAX_WARNINGS = 10


@dataclass
class RequestContext:
    """A request, and what it turned out to be about. Nothing here is text of the client's.

    `engine` names the programs that the plan runs.
    """

    request_id: str = ""
    input_format: str | None = None
    output_format: str | None = None
    engine: str | None = None
    warnings: str | None = None
    credits: int | None = None

    def planned(self, plan: Plan) -> None:
        """It is to be done in this way."""
        self.input_format, self.output_format = plan.source.name, plan.target.name
        self.engine = "+".join(sorted({Path(program).name for program in plan.programs})) or IN_PROCESS

    def charged(self, credits: int) -> None:
        """It has cost so much more."""
        self.credits = (self.credits or 0) + credits

    def warned(self, done: JobResult) -> None:
        """It was done with these warnings."""
        codes = [warned.code for warned in done.warnings if warned.code.isidentifier()]  # as the job told them
        self.warnings = ",".join(codes[:_MAX_WARNINGS]) or None

    def fields(self) -> dict[str, object]:
        """The same by name, as the log shows it."""
        return dict(vars(self))
