"""Runs a benchmark and prints its table, or JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import overhead, pairs, verification
from benchmarks.faults import overload, scenarios
from benchmarks.report import Report

cli = typer.Typer(no_args_is_help=True, add_completion=False, help="What convertd costs, and what its codecs do.")
Rounds = Annotated[int, typer.Option(help="Rounds; the table shows medians over them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@cli.command("pairs")
def run_pairs(rounds: Rounds = 3, as_json: Json = False) -> None:
    """How long each pair takes for a picture of 2 megapixels, in one process."""
    _show(lambda: pairs.measure(rounds), as_json=as_json)


@cli.command("overhead")
def run_overhead(rounds: Rounds = 200, as_json: Json = False) -> None:
    """What the service adds to a codec: one tiny picture in process, through the executor, and over HTTP."""
    _show(lambda: overhead.measure(rounds), as_json=as_json)


@cli.command("overload")
def run_overload(
    seconds: Annotated[int, typer.Option(help="How long the load lasts.")] = 60, as_json: Json = False
) -> None:
    """Ten times the load that a server can take: who is refused, how fast, and what is still done."""
    _show(lambda: overload.overload(seconds), as_json=as_json)


@cli.command("faults")
def run_faults(
    only: Annotated[str, typer.Option(help="Scenarios, such as F1,F3; all by default.")] = "",
    quick: Annotated[bool, typer.Option(help="Smaller counts, for a few minutes.")] = False,
    as_json: Json = False,
) -> None:
    """Processes that are killed, stores that go away, clients that misbehave: what the server must still hold."""
    report = scenarios.run([name for name in only.split(",") if name], quick=quick)
    _show(lambda: report, as_json=as_json)
    if not scenarios.passed(report):
        raise typer.Exit(1)


@cli.command("inspection")
def run_inspection(rounds: Rounds = 3, as_json: Json = False) -> None:
    """What it costs to open every result again before it counts."""
    _show(lambda: verification.measure(rounds), as_json=as_json)


def _show(measure: Callable[[], Report], *, as_json: bool) -> None:
    report = measure()
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return
    table = Table(*report.columns, title=report.title)
    for row in report.rows:
        table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(table)


if __name__ == "__main__":
    cli()
