"""Tenants: which jobs prove or restrict them, and who they are; estimates of memory and time, and the memory budget."""

import asyncio
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from config.settings import Settings
from engine import OptionValues
from engine.errors import ConversionError, CorruptInput, ExecutorUnavailable, OutOfMemory, TimedOut
from engine.executor import TaskLimits
from engine.executor.task_time import LONG
from engine.registry import load_registry
from storage.database import Database
from storage.tables import accounts, api_keys
from tests.support.samples.generated import quadrants
from tests.support.samples.storage import Clock
from web.services.accounts.accounts import Account
from web.services.admission.fair_queue import Standing, Tenant
from web.services.admission.task_costs import (
    START_OF_PROGRAM,
    TaskCost,
    TaskCosts,
    cpu_limit,
    estimate_memory,
)
from web.services.admission.tenant_records import FIRST_MEAN, PROVING_JOBS, SHORT_JOB, TenantRecords
from web.services.operation.machine import job_memory

RESTRICTED, UNPROVEN, PROVEN = Standing
A, B = Tenant("a", 2, "192.0.2.1"), Tenant("b", 2, "192.0.2.1")
REGISTRY = load_registry()
MIB = 1 << 20
MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def records(clock: Clock) -> TenantRecords:
    return TenantRecords(clock)


def failed(seconds: float | None, error: ConversionError | None = None) -> ConversionError:
    """An error of which the executor reports `seconds`."""
    error = error or TimedOut("late")
    error.seconds = seconds
    return error


def cancelled(seconds: float | None) -> asyncio.CancelledError:
    """The error of an abandoned job, as executors raise it."""
    error = asyncio.CancelledError()
    if seconds is not None:
        error.__cause__ = failed(seconds)
    return error


def overrun(records: TenantRecords, tenant: Tenant, times: int = 1) -> None:
    for _ in range(times):
        records.record_failure(tenant, failed(SHORT_JOB + 1))


def succeed(records: TenantRecords, tenant: Tenant, times: int = PROVING_JOBS, seconds: float = 1.0) -> None:
    for _ in range(times):
        records.record_success(tenant, seconds)


@pytest.mark.parametrize(
    ("error", "standing"),
    [
        (failed(6), RESTRICTED),
        (failed(6, CorruptInput("broken")), RESTRICTED),
        (failed(0.1, OutOfMemory("large")), RESTRICTED),
        (cancelled(6), RESTRICTED),
        (failed(4, CorruptInput("broken")), UNPROVEN),
        (cancelled(4), UNPROVEN),
        # Not of a process: the time of a cluster, of a machine that was stopped, or of the server.
        (failed(0), UNPROVEN),
        (failed(None), UNPROVEN),
        (cancelled(None), UNPROVEN),
        (failed(20, ExecutorUnavailable("no process")), UNPROVEN),
        (OSError("disk"), UNPROVEN),
    ],
    ids=str,
)
def test_three_overruns_restrict(records: TenantRecords, error: BaseException, standing: Standing) -> None:
    for _ in range(3):
        assert records.standing(A) is UNPROVEN
        records.record_failure(A, error)
    assert records.standing(A) is standing


def test_a_restriction_ends_ten_minutes_after_the_latest_overrun(records: TenantRecords, clock: Clock) -> None:
    for _ in range(3):
        overrun(records, A)
        clock.now += 599
    assert records.standing(A) is RESTRICTED
    overrun(records, A)
    clock.now += 599
    assert records.standing(A) is RESTRICTED
    clock.now += 2
    assert records.standing(A) is UNPROVEN
    overrun(records, A, 2)
    assert records.standing(A) is UNPROVEN


def test_jobs_that_find_no_slot_do_not_end_the_restriction(records: TenantRecords, clock: Clock) -> None:
    overrun(records, A, 3)
    clock.now += 599
    for tenant in (A, Tenant("c", 2)):
        records.record_refusal(tenant)
    clock.now += 599
    assert records.standing(A) is RESTRICTED
    assert records.standing(Tenant("c", 2)) is UNPROVEN
    clock.now += 2
    assert records.standing(A) is UNPROVEN


def test_successes_make_up_for_overruns(records: TenantRecords) -> None:
    overrun(records, A, 4)
    for _ in range(20):
        assert records.standing(A) is RESTRICTED
        succeed(records, A, 1, SHORT_JOB + 1)
    assert records.standing(A) is UNPROVEN
    succeed(records, A, 30, SHORT_JOB + 1)
    overrun(records, A, 2)
    assert records.standing(A) is UNPROVEN


def test_short_successes_prove_a_tenant_until_a_long_job(records: TenantRecords) -> None:
    succeed(records, A, PROVING_JOBS - 1)
    assert (records.standing(A), records.any_proven()) == (UNPROVEN, False)
    succeed(records, A, 1)
    assert (records.standing(A), records.any_proven()) == (PROVEN, True)
    records.record_failure(A, failed(1, CorruptInput("broken")))
    assert records.standing(A) is PROVEN
    succeed(records, A, 1, SHORT_JOB + 1)
    assert records.standing(A) is UNPROVEN
    succeed(records, A)
    overrun(records, A)
    assert (records.standing(A), records.any_proven()) == (UNPROVEN, False)


def test_overruns_count_for_the_address_of_registration(records: TenantRecords) -> None:
    """They restrict all tenants of the address, except proven ones."""
    overrun(records, A, 3)
    assert records.standing(B) is RESTRICTED
    assert records.standing(Tenant("c", 2, "192.0.2.2")) is records.standing(Tenant("d", 2)) is UNPROVEN
    succeed(records, B)
    assert records.standing(B) is PROVEN


def test_a_proven_tenant_is_not_restricted_by_others_of_its_address(records: TenantRecords) -> None:
    succeed(records, B)
    overrun(records, A, 5)
    assert records.standing(B) is PROVEN
    overrun(records, B, 1)
    assert records.standing(B) is RESTRICTED


def test_tenants_are_forgotten_after_a_day(records: TenantRecords, clock: Clock) -> None:
    succeed(records, A)
    clock.now += 86_401
    succeed(records, Tenant("c", 2), 1)
    assert (records.standing(A), records.any_proven(), len(records)) == (UNPROVEN, False, 1)


def test_the_expected_time_is_that_of_the_latest_jobs(records: TenantRecords) -> None:
    assert records.expected_seconds(A) == FIRST_MEAN
    succeed(records, A, 50, 4)
    assert records.expected_seconds(A) == pytest.approx(4, rel=0.01)
    assert records.expected_seconds(B) == FIRST_MEAN


@pytest.mark.parametrize("standing", Standing)
def test_standings_are_restored_unless_recorded(records: TenantRecords, clock: Clock, standing: Standing) -> None:
    succeed(records, B, 1)
    for tenant in (A, B):
        records.restore(tenant, standing)
    assert (records.standing(A), records.standing(B)) == (standing, UNPROVEN)
    clock.now += 601
    assert records.standing(A) is max(standing, UNPROVEN)


def test_a_restriction_is_logged_once(records: TenantRecords, caplog: pytest.LogCaptureFixture) -> None:
    overrun(records, Tenant("acct_1", 2), 5)
    assert [record.getMessage() for record in caplog.records] == [
        "account acct_1 is restricted: its jobs keep exceeding their limits"
    ]


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """A free account that was registered from an address."""
    database = Database(f"sqlite:///{tmp_path / 'convertd.db'}")
    stored = database.run_blocking(accounts.create, "a@b.org", "n", free_credits=50, address="192.0.2.1")
    yield Account.from_storage(stored, database.run_blocking(api_keys.issue, stored.id, "n").key.key_id, Settings())
    database.close()


def test_an_account_is_new_until_ten_conversions_or_a_purchase(account: Account) -> None:
    assert account.tenant == Tenant(account.id, 2, "192.0.2.1", is_new=True)
    assert replace(account, credits_used_total=PROVING_JOBS - 1).tenant.is_new
    assert not replace(account, credits_used_total=PROVING_JOBS).tenant.is_new
    assert not replace(account, credits_total_purchased=500).tenant.is_new


def test_each_address_of_trials_is_a_tenant_that_stays_new(account: Account) -> None:
    house = replace(account, credits_used_total=1000, address=None)
    one, two = (replace(house, client=address).tenant for address in ("192.0.2.1", "192.0.2.2"))
    assert one == replace(house, client="192.0.2.1").tenant != two
    assert house.id not in (one.id, two.id)
    assert one.is_new


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


def test_the_expected_time_of_a_pair_is_that_of_its_latest_jobs() -> None:
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
def test_the_smallest_limit_applies(tmp_path: Path, membership: str, limits: dict[str, str], expected: int) -> None:
    assert job_memory(group(tmp_path, membership, **limits)) == round(0.7 * expected)


def test_this_machine_has_a_budget() -> None:
    assert 0 < job_memory() <= MACHINE
