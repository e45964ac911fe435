"""Runs a benchmark, prints its results as tables, and writes them as JSON and into the README."""

import json
import os
import signal
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from shutil import which
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks import cluster, cold, compression, documents, jobs, memory, pairs, peers, quality, server
from benchmarks.report import Report, machine, write_readme

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Measures conversions, and the server alone, next to its peers, and with a cluster. "
    "Exits with 1 if a requirement is not met.",
)
Rounds = Annotated[int, typer.Option(min=1, help="Number of rounds; the tables show medians over them.")]
Seconds = Annotated[float, typer.Option(help="Duration of each variant in each round.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the results to this file as JSON.")]
Cache = Annotated[Path, typer.Option(help="Folder into which the software to compare with is installed.")]
Readme = Annotated[bool, typer.Option("--write-readme", help="Write the results into benchmarks/README.md.")]

_WIDTH = 140  # columns of text, also where the output is not a terminal
_README = Path(__file__).with_name("README.md")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "convertd-benchmarks"


@cli.command("server")
def run_server(rounds: Rounds = 3, seconds: Seconds = 6, json_file: Json = None, readme: Readme = False) -> None:
    """Throughput, latency, CPU time and memory of `convertd serve` with all features on."""
    publish("server", server.measure(rounds, seconds), json_file, readme=readme)


@cli.command("peers")
def run_peers(
    rounds: Rounds = 3,
    seconds: Seconds = 4,
    only: Annotated[str, typer.Option(help="Measure the workloads with this in their titles.")] = "",
    cache: Cache = _CACHE,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """convertd next to other servers, and next to libraries that repeat the same conversion without a server."""
    loads = [load for load in peers.LOADS if only in load[0].title]
    with closing(peers.measure(rounds, seconds, cache, loads)) as reports:  # servers end also if printing fails
        publish("peers", reports, json_file, readme=readme)


@cli.command("pairs")
def run_pairs(
    rounds: Rounds = 3,
    seconds: Seconds = 0.3,
    every: Annotated[
        bool, typer.Option("--all", help="Measure every pair of formats with an image, without rivals.")
    ] = False,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """Time of conversions by the executor, compared with calls of libraries and with programs."""
    publish("pairs", pairs.measure(rounds, seconds, every=every), json_file, readme=readme)


@cli.command("quality")
def run_quality(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Photos, screens (PNG), animations (GIF). Default: a generated image."),
    ] = None,
    cache: Cache = _CACHE,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """Size and visual quality of photos in the lossy formats, of screens as PNG and of animations as GIF."""
    publish("quality", quality.measure(cache, files or ()), json_file, readme=readme)


@cli.command("compression")
def run_compression(
    files: Annotated[list[Path], typer.Argument(help="PDF files.")], json_file: Json = None, readme: Readme = False
) -> None:
    """Sizes of compressed PDFs and the similarity of their pages, next to Ghostscript and qpdf."""
    publish("compression", compression.measure(files), json_file, readme=readme)


@cli.command("documents")
def run_documents(
    paths: Annotated[list[Path], typer.Argument(help="Folders, or files: DOCX, ODT, EPUB and HTML.")],
    pandoc: Annotated[str | None, typer.Option(help="The program to compare with.")] = which("pandoc"),
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """What documents keep in Markdown: headings, links, pictures, notes, lists, tables and words, next to Pandoc."""
    publish("documents", documents.measure(paths, pandoc), json_file, readme=readme)


@cli.command("memory")
def run_memory(
    seconds: Annotated[float, typer.Option(help="Duration of each burst.")] = 8,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """Memory of a server's processes before, during and after bursts of conversions."""
    publish("memory", memory.measure_bursts(seconds), json_file, readme=readme)


@cli.command("cold")
def run_cold(rounds: Rounds = 3, json_file: Json = None, readme: Readme = False) -> None:
    """First conversions after the start of a server next to later ones, its memory, and the command."""
    publish("cold", cold.measure(rounds), json_file, readme=readme)


@cli.command("soak")
def run_soak(
    minutes: Annotated[float, typer.Option(help="Duration of the load.")] = 30,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """Memory, descriptors, files and log of a server under a mixed load at 70 % of its capacity."""
    publish("soak", memory.measure_soak(minutes), json_file, readme=readme)


@cli.command("cluster")
def run_cluster(rounds: Rounds = 3, seconds: Seconds = 4, json_file: Json = None, readme: Readme = False) -> None:
    """A server with a cluster of two workers next to one without, and the CPU time of each part of the cluster."""
    publish("cluster", cluster.measure(rounds, seconds), json_file, readme=readme)


@cli.command("jobs")
def run_jobs(
    seconds: Annotated[float, typer.Option(help="Duration of each load.")] = 5,
    json_file: Json = None,
    readme: Readme = False,
) -> None:
    """Jobs that are accepted, claimed and finished per second, and the latency of requests beside a full queue."""
    publish("jobs", jobs.measure(seconds), json_file, readme=readme)


def publish(mode: str, results: Iterable[Report], json_file: Path | None = None, *, readme: bool = False) -> None:
    """Prints each result when it is known, and writes all. Exits with 1 if a requirement is not met."""
    reports = []
    for report in results:
        reports.append(report)
        table = Table(*report.columns, title=report.title)
        for row in report.as_text():
            table.add_row(*row)
        Console(width=max(Console().width, _WIDTH)).print(table)
    if json_file is not None:
        content = {"mode": mode, **machine(), "results": [report.as_json() for report in reports]}
        json_file.write_text(json.dumps(content, indent=2))
    if readme:
        write_readme(_README, mode, reports)
    if not all(report.passed() for report in reports):
        raise typer.Exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # the servers end, too
    cli()
