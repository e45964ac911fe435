"""Runs a benchmark and prints its results as a table or as JSON."""

from __future__ import annotations

import json
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import overhead, pairs, thumbnails, verification
from benchmarks.faults import overload, scenarios
from benchmarks.report import Report

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measures conversions, the server's overhead, and its behaviour under faults.",
)
Rounds = Annotated[int, typer.Option(help="Number of rounds; the table shows medians over them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@cli.command("pairs")
def run_pairs(rounds: Rounds = 3, as_json: Json = False) -> None:
    """Time of each conversion of a picture of 2 megapixels, in one process."""
    _print(pairs.measure(rounds), as_json=as_json)


@cli.command("overhead")
def run_overhead(rounds: Rounds = 200, as_json: Json = False) -> None:
    """Overhead of the service: a tiny picture converted in process, by the executor, and over HTTP."""
    _print(overhead.measure(rounds), as_json=as_json)


@cli.command("verification")
def run_verification(rounds: Rounds = 3, as_json: Json = False) -> None:
    """Time to reopen and check each result."""
    _print(verification.measure(rounds), as_json=as_json)


@cli.command("thumbnails")
def run_thumbnails(rounds: Rounds = 3, as_json: Json = False) -> None:
    """CPU time of a photo of 24 megapixels converted to 320 pixels, compared with the whole photo."""
    _print(thumbnails.measure(rounds), as_json=as_json)


@cli.command("overload")
def run_overload(
    seconds: Annotated[int, typer.Option(help="Duration of the load in each round.")] = 60, as_json: Json = False
) -> None:
    """Goodput, refusals and recovery of a server under ten times the load that it can process."""
    _print(overload.overload(seconds), as_json=as_json)


@cli.command("faults")
def run_faults(
    only: Annotated[str, typer.Option(help="Scenarios, for example F1,F3. Default: all.")] = "",
    quick: Annotated[bool, typer.Option(help="Divide the counts by 10; takes a few minutes.")] = False,
    as_json: Json = False,
) -> None:
    """Killed processes, unavailable stores and misbehaving clients. Exits with 1 if a requirement is not met."""
    report = scenarios.run([name for name in only.split(",") if name], quick=quick)
    _print(report, as_json=as_json)
    if not report.passed():
        raise typer.Exit(1)


def _print(report: Report, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(report.as_json(), indent=2))
        return
    table = Table(*report.columns, title=report.title)
    for row in report.rows:
        table.add_row(*(f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in row))
    Console().print(table)


if __name__ == "__main__":
    cli()
