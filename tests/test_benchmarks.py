"""The benchmarks run, measure process trees, and write their results."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import partial
from math import nan
from pathlib import Path
from subprocess import PIPE

import pytest
import typer
from typer.testing import CliRunner

from benchmarks import cluster_model, pairs, peers, quality, samples, server
from benchmarks.__main__ import cli, publish
from benchmarks.measure import COLUMNS, Run, cpu_seconds, interleaved, repeat_concurrently, table
from benchmarks.report import Report, at_most, info, write_readme
from engine.registry import load_registry

_OVERHEAD = """
import sys
from benchmarks.__main__ import cli
cli(["overhead", *sys.argv[1:]], standalone_mode=False)
print(*sys.modules)
"""
_WITHOUT_TESTS = """
import sys
sys.modules["moto"] = sys.modules["jsonschema_rs"] = sys.modules["psycopg"] = None
from benchmarks.__main__ import cli
for mode in sys.argv[1:]:
    try:
        cli([mode])
    except SystemExit as end:
        print(mode, end.code)
"""
_BUSY_CHILD = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import time\\nwhile time.process_time() < 0.4: pass"])
print(flush=True)
input()
"""


def test_a_mode_runs_without_the_tests_and_writes_json(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    options = ["--rounds", "1", "--seconds", "0.05", "--json", str(results)]

    command = [sys.executable, "-c", _OVERHEAD, *options]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    assert "benchmarks.peers" in loaded
    assert [name for name in loaded if name.partition(".")[0] == "tests"] == []
    written = json.loads(results.read_text())
    assert {"mode", "date", "processor", "cores", "python", "results"} == written.keys()
    (report,) = written["results"]
    assert len(report["rows"]) == 8
    assert all(row["failed"] == 0 and row["per second"] > 0 and row["p50 ms"] > 0 for row in report["rows"])


def test_a_requirement_that_is_not_met_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    publish("memory", [Report("Requirements", COLUMNS, (at_most("met", 1, 1),))])
    assert "NO" not in capsys.readouterr().out

    with pytest.raises(typer.Exit) as stopped:
        publish("memory", [Report("Requirements", COLUMNS, (at_most("not met", 2, 1),))])
    assert stopped.value.exit_code == 1
    assert "NO" in capsys.readouterr().out


def test_modes_that_need_the_tests_name_the_command_that_installs_them() -> None:
    program = [sys.executable, "-c", _WITHOUT_TESTS, "overload", "faults"]
    done = subprocess.run(program, check=True, capture_output=True, text=True)

    assert done.stdout.splitlines() == ["overload 1", "faults 1"]
    assert done.stderr.count("sh config/setup.sh test") == 2
    assert "Traceback" not in done.stderr


def test_a_mode_without_its_extra_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "benchmarks.scale", raising=False)
    monkeypatch.setitem(sys.modules, "distributed", None)
    for name in [name for name in sys.modules if name.startswith(("benchmarks.cluster", "benchmarks.sleeping"))]:
        monkeypatch.delitem(sys.modules, name)

    done = CliRunner().invoke(cli, ["scale"])

    assert done.exit_code == 1
    assert "pip install 'convertd[cluster]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("option", [["--rounds", "0"], ["--workers", "99"]])
def test_the_sizes_of_a_cluster_are_checked(option: list[str]) -> None:
    assert CliRunner().invoke(cli, ["scale", *option]).exit_code == 2


def test_the_first_limit_of_a_cluster() -> None:
    job = cluster_model.CpuTimes(scheduler=0.001, server=0.001, worker=0.002)
    per_worker = cluster_model.CpuTimes(scheduler=0.000001, server=0, worker=0)
    heartbeat = cluster_model.CpuTimes(scheduler=0.0005, server=0, worker=0.001)
    costs = cluster_model.Costs(job, per_worker, heartbeat, 0.00001, 0.005, ledger_jobs=450, bytes_per_second=10**9)
    small, large = cluster_model.Workload("small", 0.1, 0), cluster_model.Workload("large", 1.0, 10**7)
    few, many = cluster_model.Cluster(10, 4, heartbeats=20), cluster_model.Cluster(1000, 4, heartbeats=200)

    rows = cluster_model.table(costs, [few, many], [small, large]).as_json()["rows"]

    assert [row["jobs/s wanted"] for row in rows] == pytest.approx([400, 40_000, 40, 4000])
    assert [row["servers needed"] for row in rows] == [2, 3, 1, 3]
    # (1 - heartbeats - polls) / (CPU time per job + workers x CPU time per worker)
    limits = [(1 - 0.01 - 2 * 0.00002) / 0.00101, (1 - 0.1 - 3 * 0.002) / 0.002]
    assert [row["scheduler jobs/s"] for row in rows[:2]] == pytest.approx(limits)
    assert [row["blob folder jobs/s"] for row in rows] == ["no limit", "no limit", 100, 100]
    assert [row["first limit"] for row in rows] == ["workers", "scheduler", "workers", "blob folder"]
    assert [row["% of wanted"] for row in rows] == pytest.approx([100, limits[1] / 400, 100, 2.5])


def test_the_costs_of_a_job_are_linear_in_the_workers_and_do_not_fall() -> None:
    few, many = cluster_model.CpuTimes(0.002, 0.003, 0.004), cluster_model.CpuTimes(0.011, 0.003, 0.001)

    base, slope = cluster_model.line(10, few, 100, many)

    assert astuple(slope) == pytest.approx((0.0001, 0, 0))
    assert astuple(base) == pytest.approx((0.001, 0.003, 0.004))


def test_a_simulation_is_limited_by_the_cores_that_its_processes_share() -> None:
    nothing, job = cluster_model.CpuTimes(0, 0, 0), cluster_model.CpuTimes(0.001, 0.002, 0.003)
    heartbeat = cluster_model.CpuTimes(0.001, 0, 0.002)
    costs = cluster_model.Costs(job, nothing, heartbeat, 0, 0.002, ledger_jobs=1, bytes_per_second=1)
    cluster = cluster_model.Cluster(100, 2, heartbeats=50)

    parts = cluster_model.simulated(costs, cluster, jobs=200, seconds=0.1, processes=2, cores=2)

    assert parts["workers"] == pytest.approx(2000)
    assert parts["scheduler"] == pytest.approx(0.95 / 0.001)
    assert parts["workers' processes"] == pytest.approx(1.9 / 0.003)
    assert parts["cores"] == pytest.approx((2 - 0.15) / 0.006)
    assert cluster_model.bottleneck(parts) == "cores"


async def test_concurrent_repetitions_have_their_throughput() -> None:
    running: list[int] = []

    async def action() -> None:
        running.append(running[-1] + 1 if running else 1)
        await asyncio.sleep(0.01)
        running.append(running[-1] - 1)

    run = await repeat_concurrently(action, 3, 0.05, lambda: 0.1 * len(running))

    assert max(running) == 3
    assert running[-1] == 0
    assert run.throughput == pytest.approx(3 * len(run.latencies) / sum(run.latencies))
    assert run.cpu == pytest.approx(0.2)  # each appends twice


def test_peers_that_cannot_be_installed_are_listed(tmp_path: Path) -> None:
    not_a_folder = tmp_path / "cache"
    not_a_folder.touch()

    servers, load, requirements = peers.measure(1, 0.05, not_a_folder, [(server.TINY, 2)])

    (ours, *others) = servers.as_json()["rows"]
    assert ours["server"] == "convertd"
    assert ours["memory MiB"] > 10
    assert ours["photo bytes"] > ours["tiny bytes"] > 0
    assert [row["server"] for row in others] == [peer.name for peer in peers.PEERS]
    assert all(row["versions"].startswith("cannot be installed or started: ") for row in others)
    (row,) = load.as_json()["rows"]
    assert row["variant"] == "convertd"
    assert row["failed"] == 0
    assert row["CPU ms"] > 0
    assert {row["measured"] for row in requirements.as_json()["rows"]} == {"not measured"}


async def test_the_pillow_loops_are_measured() -> None:
    content = samples.encoded(samples.TINY, "JPEG")
    with ThreadPoolExecutor(2) as threads:
        run = await server.pillow_loops(threads, content, 0.05)

    assert run.throughput > 0
    assert 0 < run.cpu < 0.1


def test_every_input_can_be_made() -> None:
    registry = load_registry()
    made = samples.inputs(registry, samples.TINY)

    assert {source for source, _ in pairs.CODECS} <= made.keys()
    for name, content in made.items():
        assert registry.identify_content(content) == registry.formats[name]


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

    photos = [samples.photo((96, 64)), samples.photo((64, 96))]
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
