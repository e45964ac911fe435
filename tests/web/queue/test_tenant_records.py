"""TenantRecords: which jobs prove a tenant, and which restrict it."""

import asyncio

import pytest

from engine.errors import ConversionError, CorruptInput, ExecutorUnavailable, OutOfMemory, TimedOut
from tests.support.samples.storage import Clock
from web.services.admission.fair_queue import Standing, Tenant
from web.services.admission.tenant_records import FIRST_MEAN, PROVING_JOBS, SHORT_JOB, TenantRecords

RESTRICTED, UNPROVEN, PROVEN = Standing
A, B = Tenant("a", 2, "192.0.2.1"), Tenant("b", 2, "192.0.2.1")


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
def test_a_standing_is_restored_unless_there_is_a_record(
    records: TenantRecords, clock: Clock, standing: Standing
) -> None:
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
