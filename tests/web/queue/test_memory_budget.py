"""Memory estimates and deadlines of jobs, and the memory budget of the machine."""

import os
from pathlib import Path

import pytest

from engine import OptionValues
from engine.executor import TaskLimits
from engine.executor.task_time import LONG
from engine.registry import load_registry
from tests.support.samples.generated import quadrants
from web.services.admission.task_costs import (
    START_OF_PROGRAM,
    TaskCost,
    TaskCosts,
    cpu_limit,
    estimate_memory,
)
from web.services.operation.machine import job_memory

REGISTRY = load_registry()
MIB = 1 << 20
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def job(source: str, target: str, size: int) -> int:
    """The estimate in bytes for an input of `size` bytes."""
    return estimate_memory(REGISTRY.plan([REGISTRY.formats[source]], target), size)


def test_estimates_grow_with_file_size_and_depend_on_the_formats() -> None:
    assert job("jpeg", "png", 1) == job("jpeg", "avif", 1000) == 256 * MIB
    assert job("jpeg", "png", 5 * MIB) > job("jpeg", "png", 3 * MIB) > 256 * MIB
    assert job("jpeg", "heic", 5 * MIB) > job("jpeg", "avif", 5 * MIB) > job("jpeg", "webp", 5 * MIB)
    assert job("webp", "jpeg", 2 * MIB) > job("heic", "jpeg", 2 * MIB)
    assert job("bmp", "png", 20 * MIB) < job("jpeg", "png", 20 * MIB)


def test_deadlines_of_drawings_and_programs_grow_with_their_size() -> None:
    def seconds(source: str, size: int) -> float:
        return cpu_limit(REGISTRY.plan([REGISTRY.formats[source]], "png"), size)

    assert [seconds("jpeg", size) for size in (1, 10 * MIB)] == [110, 110]
    for source in ("svg", "eps", "pdf"):
        assert [seconds(source, size) for size in (0, 400_000, 10 * MIB)] == [25, 35, 110]


def cost(source: str, target: str, size: int) -> TaskCost:
    return TaskCost.of([REGISTRY.plan([REGISTRY.formats[source]], target)], size)


def test_the_expected_time_is_that_of_the_plan_at_first() -> None:
    costs = TaskCosts()
    assert costs.expected_seconds(cost("png", "jpeg", 4000)) <= LONG
    assert costs.expected_seconds(cost("jpeg", "avif", 5 * MIB)) > LONG
    assert cost("docx", "pdf", 4000).planned > START_OF_PROGRAM > cost("jpeg", "avif", 4000).planned


def test_the_expected_time_is_that_of_the_latest_jobs() -> None:
    costs, tiny, other = TaskCosts(), cost("png", "jpeg", 4000), cost("png", "webp", 4000)
    costs.record(tiny, 100.0, complete=False)  # one that takes long is no reason to expect it of others
    assert costs.expected_seconds(tiny) <= LONG
    for _ in range(20):
        costs.record(tiny, 2.0, complete=True)
    assert 1 < costs.expected_seconds(tiny) <= 2
    assert costs.expected_seconds(other) == other.planned
    before = costs.expected_seconds(tiny)
    costs.record(tiny, 0.0, complete=False)  # that it failed soon says nothing
    assert costs.expected_seconds(tiny) == before
    for _ in range(20):
        costs.record(tiny, 0.01, complete=True)
    assert costs.expected_seconds(tiny) <= LONG


def test_estimates_stay_below_the_limit_of_a_job() -> None:
    assert job("jpeg", "heic", 10**9) == TaskLimits().memory
    assert 256 * MIB < job("jpeg", "png", 10**9) < TaskLimits().memory


def test_estimates_include_the_result_in_memory() -> None:
    plan, pixels = REGISTRY.plan([REGISTRY.formats["png"]], "bmp"), 50_000_000
    size = round(pixels * plan.source.bytes_per_pixel)
    assert estimate_memory(plan, size) >= pixels * (plan.memory + 3)


@pytest.mark.parametrize(
    ("options", "pixels"),
    [
        ({"width": 6000, "height": 5000, "enlarge": True}, 30_000_000),
        ({"width": 3000, "dpr": 2, "enlarge": True}, 36_000_000),
        ({"scale": "1000%", "enlarge": True}, 25_000_000),
        ({"pad": "2500"}, 25_000_000),
        ({"pad": "0,9999,2000,0"}, 20_000_000),
        ({"width": 6000, "height": 5000}, 0),  # it is not enlarged
        ({"width": 60_000, "height": 60_000, "enlarge": True}, 100_000_000),
    ],
)
def test_estimates_include_what_options_add(options: OptionValues, pixels: int) -> None:
    size = 25_000  # bytes, of some 250,000 pixels
    plan = REGISTRY.plan([REGISTRY.formats["png"]], "tga", options=options)

    estimate = estimate_memory(plan, size, options)

    assert estimate >= min(pixels * plan.memory, TaskLimits().memory)
    assert estimate == 256 * MIB or pixels


def test_a_file_of_the_usual_density_is_not_underestimated(tmp_path: Path) -> None:
    path, size = tmp_path / "picture.webp", (4000, 3000)
    quadrants(size).effect_spread(6).save(path, "WEBP", quality=80)
    assert job("webp", "jpeg", path.stat().st_size) >= size[0] * size[1] * 16


def group(root: Path, membership: str, **limits: str) -> Path:
    """A root folder with control groups; `limits` name folders with `__` for `/`."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(membership)
    for name, limit in limits.items():
        version_1 = name.startswith("memory")
        folder = root / "sys/fs/cgroup" / name.replace("__", "/").removeprefix("top")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ("memory.limit_in_bytes" if version_1 else "memory.max")).write_text(f"{limit}\n")
    return root


@pytest.mark.parametrize(
    ("membership", "limits", "expected"),
    [
        ("", {}, MACHINE),
        ("0::/service/convertd\n", {"service__convertd": "max", "service": "max"}, MACHINE),
        ("0::/service/convertd\n", {"service__convertd": str(64 * MIB), "service": "max"}, 64 * MIB),
        ("0::/service/convertd\n", {"service__convertd": "max", "service": str(32 * MIB)}, 32 * MIB),
        ("0::/\n", {"top": str(16 * MIB)}, 16 * MIB),
        ("5:memory:/box\n0::/\n", {"memory__box": str(8 * MIB), "memory": str(2**63 - 4096)}, 8 * MIB),
        ("5:memory:/elsewhere\n", {"memory": str(4 * MIB)}, 4 * MIB),
        ("5:cpu,cpuacct:/box\n", {"box": str(MIB)}, MACHINE),
    ],
)
def test_the_smallest_control_group_limit_applies(
    tmp_path: Path, membership: str, limits: dict[str, str], expected: int
) -> None:
    assert job_memory(group(tmp_path, membership, **limits)) == round(0.7 * expected)


def test_this_machine_has_a_budget() -> None:
    assert 0 < job_memory() <= MACHINE
