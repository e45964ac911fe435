"""The benchmarks run, measure process trees, and write their results."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from functools import partial
from math import nan
from pathlib import Path
from subprocess import PIPE

import numpy as np
import pytest
import typer
from pikepdf import Name

from benchmarks import cluster, compression, documents, jobs, libraries, pairs, peer_servers, peers, quality, workloads
from benchmarks.__main__ import publish
from benchmarks.encoders import Encoder
from benchmarks.measure import COLUMNS, Run, cpu_seconds, interleaved, table
from benchmarks.processes import ServerProcess, child_processes, process_status, process_tree
from benchmarks.report import Report, at_most, info, write_readme
from engine import pipeline
from engine.registry import load_registry
from tests.support.samples.office_files import docx
from tests.support.samples.pdf_images import PHOTO, flate, image_document
from tests.support.servers.in_process import eventually

_BUSY_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
print(flush=True)
input()
"""


def test_results_are_written_as_json(tmp_path: Path) -> None:
    results = tmp_path / "results.json"

    publish("memory", [Report("Bursts", ("burst", "MiB"), (("tiny", 1.5), ("large", nan)))], results)

    written = json.loads(results.read_text())
    assert {"mode", "date", "processor", "cores", "python", "results"} == written.keys()
    rows = [{"burst": "tiny", "MiB": 1.5}, {"burst": "large", "MiB": None}]
    assert written["results"] == [{"title": "Bursts", "rows": rows}]


def test_a_requirement_that_is_not_met_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    publish("memory", [Report("Requirements", COLUMNS, (at_most("met", 1, 1),))])
    assert "NO" not in capsys.readouterr().out

    with pytest.raises(typer.Exit) as stopped:
        publish("memory", [Report("Requirements", COLUMNS, (at_most("not met", 2, 1),))])
    assert stopped.value.exit_code == 1
    assert "NO" in capsys.readouterr().out


@pytest.mark.long
def test_peers_that_cannot_be_installed_are_listed(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "cache"
    not_a_folder.touch()

    before = child_processes(os.getpid())
    reports = peers.measure(1, 0.3, not_a_folder, [(workloads.DELETION, 2)])
    servers = next(reports)
    assert len(child_processes(os.getpid())) > len(before)  # the loads are yet to run
    sizes, load, requirements = reports
    assert child_processes(os.getpid()) == before

    one, two, *others = servers.as_json()["rows"]
    assert [one["server"], two["server"]] == [peers.CONVERTD, peers.SEVERAL]
    assert 10 < one["memory MiB"] < two["memory MiB"]
    missing = [*(peer.name for peer in peer_servers.PEERS), libraries.LIBVIPS.title]
    assert [row["server"] for row in others] == missing
    assert all(": [Errno 20] Not a directory" in row["versions"] for row in others)
    (size,) = sizes.as_json()["rows"]
    assert size[peers.CONVERTD] == size[peers.SEVERAL] > 1000
    variants = [row["variant"] for row in load.as_json()["rows"]]
    assert variants == [peers.CONVERTD, peers.SEVERAL, libraries.MUPDF_DELETION.title]
    for row in load.as_json()["rows"]:
        assert row["failed"] == 0
        assert row["CPU ms"] > 0
    *unmeasured, overhead = requirements.as_json()["rows"]
    assert {row["measured"] for row in unmeasured} == {"not measured"}
    assert overhead["measured"] > 0


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_benchmark_that_is_ended_ends_its_servers(tmp_path: Path, number: signal.Signals) -> None:
    not_a_folder = tmp_path / "cache"
    not_a_folder.touch()
    arguments = ("peers", "--only", "deletion", "--seconds", "60", "--cache", str(not_a_folder))
    with subprocess.Popen([sys.executable, "-m", "benchmarks", *arguments], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("Servers" in line for line in process.stdout)
        started = process_tree(process.pid)[1:]
        process.send_signal(number)
        process.stdout.read()
        assert process.wait() != 0

    assert len(started) > 5
    assert eventually(lambda: not any(map(process_status, started)))


def test_a_server_that_does_not_start_is_ended() -> None:
    class Silent(ServerProcess):
        command = (sys.executable, "-c", "import time; time.sleep(60)")

        def answers(self) -> bool:
            raise KeyboardInterrupt

    server = Silent()
    with pytest.raises(KeyboardInterrupt), server:
        pass

    assert server.process.returncode == -signal.SIGKILL


@pytest.mark.long
def test_jobs_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "FULL_QUEUE", 50)
    monkeypatch.setattr(jobs, "MESSAGES", 500)
    results, requirements = jobs.measure(1)

    for row in results.as_json()["rows"]:
        assert row["accepted per second"] > row["finished per second"] > 0
        assert row["CPU ms"] > 0
        assert row["refused"] == 0
        assert row["messages per second"] > 0
    assert 5 < row["statements"] < 30
    assert len(requirements.as_json()["rows"]) == 8


@pytest.mark.long
def test_a_cluster_is_measured() -> None:
    *loads, cpu, _ = cluster.measure(1, 0.1)

    for row in [row for load in loads for row in load.as_json()["rows"]]:
        assert row["failed"] == 0
        assert row["per second"] > 0
        assert row["CPU ms"] > 0
    for row in cpu.as_json()["rows"]:
        assert row["server"] > 0
        assert row["scheduler"] > 0
        assert row["workers"] > 0


async def test_loops_of_libraries_are_measured(tmp_path: Path) -> None:
    (tmp_path / workloads.PHOTO.file).write_bytes(workloads.encoded(workloads.TINY_SIZE, "JPEG"))

    run = await libraries.PILLOW.variant(tmp_path, 0.05)()

    assert run.throughput > 0
    assert 0 < run.cpu < 0.1


def test_every_input_can_be_made() -> None:
    registry = load_registry()
    made = workloads.inputs(registry, workloads.TINY_SIZE)

    for name, content in made.items():
        assert registry.identify_content(content) == registry.formats[name]


@pytest.mark.long
async def test_rivals_of_pairs_do_the_same() -> None:
    registry = load_registry()
    files = workloads.files(registry, workloads.TINY_SIZE)

    for pair in pairs.PAIRS:
        plan = registry.plan([registry.identify_content(files[pair.file], pair.file)], pair.target, pair.tool)
        assert pipeline.run(plan, [files[pair.file]]).data
        for library in pair.libraries.values():
            library(files[pair.file])


async def test_pairs_are_measured_beside_programs(tmp_path: Path) -> None:
    (tmp_path / "drawing.svg").write_bytes(workloads.drawing())
    programs = ["cp drawing.svg {folder}/out", "no-such-program drawing.svg"]
    pair = pairs.Pair("drawing.svg", "png", {"nothing": len}, programs)

    rows = await pairs.run(load_registry(), [pair], tmp_path, 1, 0.01)

    assert [row[:3] for row in rows] == [("drawing.svg", "png", name) for name in ("nothing", "cp")]
    assert (tmp_path / "out").read_bytes() == workloads.drawing()
    assert all(float(cell) > 0 for row in rows for cell in (*row[3:6], *row[8:9]))


def test_cpu_time_includes_ended_children() -> None:
    with subprocess.Popen([sys.executable, "-c", _BUSY_CHILD], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        assert cpu_seconds(process.pid) >= 0.3
        process.stdin.close()


def test_qualities_are_compared() -> None:
    def metric(original: Path, results: Sequence[Path]) -> list[float]:
        score = 80 if original.stem == "0" else 82
        return [score if "-jpeg-" in result.name else score / 2 for result in results if result.stat().st_size]

    photos = [workloads.photo((96, 64)), workloads.photo((64, 96))]
    table, requirements = quality.compare(load_registry(), photos, metric)

    rows = table.as_json()["rows"]
    for name, qualities in quality.QUALITIES.items():
        own = [row for row in rows if row["format"] == name]
        assert {*qualities} <= {row["quality"] for row in own}
        assert [row["default"] for row in own].count("yes") == 1
        assert own[0]["bytes / JPEG"] < own[-1]["bytes / JPEG"]
        scores = {(row["score"], row["lowest"], row["highest"]) for row in own}
        assert scores == {(81, 80, 82) if name == "jpeg" else (40.5, 40, 41)}
    assert [row["bytes / JPEG"] for row in rows if row["format"] == "jpeg" and row["default"]] == [1.0]
    assert [row["met"] for row in requirements.as_json()["rows"]] == ["yes", "NO", "NO", "NO"]


async def test_rounds_alternate_in_order() -> None:
    order: list[str] = []

    async def run(name: str) -> Run:
        order.append(name)
        return Run((1.0,), 1.0, 0.5)

    runs = await interleaved({name: partial(run, name) for name in "ABC"}, 3)

    assert "".join(order) == "ABCCBAABC"
    assert {name: len(found) for name, found in runs.items()} == {"A": 3, "B": 3, "C": 3}


def test_ratios_are_those_of_the_same_round() -> None:
    slow = [Run((0.1,), 10, 0.01), Run((0.2,), 5, 0.02), Run((0.4,), 2.5, 0.04)]
    fast = [Run((0.05, 0.05), 20, 0.02), Run((0.1, 0.1), 10, 0.04, 1), Run((0.1, 0.1), 10, 0.04)]

    first, second = (dict(zip(COLUMNS, row, strict=True)) for row in table("", {"slow": slow, "fast": fast}).rows)

    assert (first["ratio"], second["ratio"]) == (1, 2)
    assert (first["CPU ratio"], second["CPU ratio"]) == (1, 2)
    assert (second["per second"], second["spread %"], second["p50 ms"], second["CPU ms"]) == (10, 100, 100, 40)
    assert second["failed"] == 1


def test_the_readme_gets_the_results_of_its_mode(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    section = "<!-- results: {} -->\n{}<!-- end of results -->\n"
    readme.write_text("before\n" + section.format("server", "old\n") + section.format("peers", "kept\n") + "after\n")
    report = Report("Servers", ("variant", "CPU ms"), (("convertd", 2.345), ("other", nan)))

    write_readme(readme, "server", [report])

    written = readme.read_text()
    assert "old" not in written
    assert "Servers:\n\n| variant | CPU ms |\n|---|---|\n| convertd | 2.35 |\n| other |  |\n" in written
    assert written.startswith("before\n<!-- results: server -->\nMeasured on 20")
    assert written.endswith(section.format("peers", "kept\n") + "after\n")
    with pytest.raises(ValueError, match="memory"):
        write_readme(readme, "memory", [report])


def test_requirements() -> None:
    assert Report("", COLUMNS, (at_most("met", 1, 1), info("no requirement"))).passed()
    assert not Report("", COLUMNS, (at_most("met", 1, 1), at_most("not met", 2, 1))).passed()


def test_another_encoder_is_compared_at_an_equal_score() -> None:
    def metric(original: Path, results: Sequence[Path]) -> list[float]:
        return [float(result.stem.rpartition("-")[2]) if "-" in result.stem else 81.5 for result in results]

    pillow = "import sys; from PIL import Image; Image.open(sys.argv[1]).save(sys.argv[2], quality=80)"
    command = f"{sys.executable} -c '{pillow}' {{source}} {{target}}"
    peers = [Encoder("pillow", name, command) for name in ("jpeg", "avif")]

    *_, table = quality.compare(load_registry(), [workloads.photo((96, 64))], metric, peers)

    jpeg, avif = table.as_json()["rows"]
    assert (jpeg["format"], jpeg["score"], avif["format"], avif["score"]) == ("jpeg", 81.5, "avif", 81.5)
    ratio = "bytes: convertd / encoder at its score"
    assert 0.5 < jpeg["lowest"] == jpeg[ratio] == jpeg["highest"] < 2
    assert avif[ratio] == "none in range"
    assert jpeg["CPU ms"] > 10  # Python starts


def test_compressed_documents_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "photo.pdf"
    file.write_bytes(image_document(lambda made: flate(made, PHOTO, Name.DeviceRGB)))

    table, requirements = compression.measure([file])

    (row,) = table.as_json()["rows"]
    assert row["bytes: convertd"] < row["bytes"] / 4
    assert row["bytes: qpdf"] > row["bytes: convertd"]
    assert row["smallest"] in ("yes", "no")
    assert requirements.as_json()["rows"][0]["measured"] in (0, 1)


def test_similarity_of_pages() -> None:
    page = np.asarray(workloads.photo((64, 64)).convert("L"), float)
    noisy, noisier = (page + np.random.default_rng(1).normal(0, sigma, page.shape) for sigma in (5, 20))
    assert compression.similarity(page, page) == pytest.approx(1)
    assert 0.5 < compression.similarity(page, noisy) < 1
    assert compression.similarity(page, noisier) < compression.similarity(page, noisy)
    assert compression.similarity(page, page[1:]) == 0


def test_the_structure_of_documents_is_counted() -> None:
    """Also in tables of HTML; what leads back from notes, is empty or holds other notes is not counted."""
    markdown = (
        "---\ntitle: T\n---\n\n# One\n\n##\n\n- a [link](https://a.example)[^1]\n-\n\n| a | b |\n|---|---|\n| c | |\n\n"
        "<table><tr><td>\n\n![](data:image/x-emf;base64,AA==)\n\n</td></tr></table>\n\n[^1]: note\n"
    )
    counts = documents.counts(markdown, Counter({"One": 1, "note": 2, "lost": 1}))
    expected = {"headings": 1, "links": 1, "pictures": 1, "notes": 1, "items": 1, "cells": 5}
    assert counts == {**expected, documents.WORDS: 50}


def test_documents_are_compared_with_pandoc(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(docx("all of it"))
    table, requirements = documents.measure([tmp_path], None)
    (row,) = table.as_json()["rows"]
    assert (row["file"], row["words %"], row["headings: Pandoc"]) == ("a.docx", 100, None)
    assert requirements.passed()
