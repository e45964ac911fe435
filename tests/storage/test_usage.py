"""Usage reports."""

from calendar import timegm

from storage.database import Database
from storage.tables import usage
from storage.tables.usage import DayUsage, PairUsage, UsageRecord, UsageReport
from tests.support.samples.storage import Clock, open_account

JANUARY = timegm((2030, 1, 1, 0, 0, 0))
DAY = 86_400


def record(database: Database, account: str, use: UsageRecord, *, success: bool = True, credits: int = 1) -> None:
    database.run_blocking(usage.record, account, use, success=success, credits=credits)


def test_a_report_without_usage(database: Database) -> None:
    report = database.run_blocking(usage.report, open_account(database).id, 0, 2 * JANUARY)
    operations = {"convert": 0, "batch": 0, "pdf_merge": 0, "pdf_delete_pages": 0}
    assert report == UsageReport(0, 2 * JANUARY, 0, 0, 0, 0, 0, 0, 0, operations, (), ())


def test_the_report_of_a_period(database: Database, clock: Clock) -> None:
    account, other = open_account(database).id, open_account(database).id
    clock.now = JANUARY + 0.9
    record(database, account, UsageRecord("convert", "png", "webp", 100, 40))
    record(database, account, UsageRecord("convert", "png", "webp", 100), success=False, credits=0)
    record(database, other, UsageRecord("convert", "png", "webp", 7, 7))
    clock.now = JANUARY + 2 * DAY - 1
    record(database, account, UsageRecord("batch", "png", "webp", 10**12, 10**12))
    clock.now += 1
    record(database, account, UsageRecord("pdf_merge", "pdf", "pdf", 20, 20))
    record(database, account, UsageRecord("pdf_split", "pdf", "pdf", 10, 9))
    report = database.run_blocking(usage.report, account, JANUARY, JANUARY + 31 * DAY)
    assert report == UsageReport(
        start=JANUARY,
        end=JANUARY + 31 * DAY,
        total_conversions=5,
        successful_conversions=4,
        failed_conversions=1,
        credits_used=4,
        bytes_in=10**12 + 230,
        bytes_out=10**12 + 69,
        bytes_total=2 * 10**12 + 299,
        by_operation={"convert": 2, "batch": 1, "pdf_merge": 1, "pdf_delete_pages": 0, "pdf_split": 1},
        by_conversion=(PairUsage("png", "webp", 3, 2), PairUsage("pdf", "pdf", 2, 2)),
        by_day=(
            DayUsage("2030-01-01", conversions=2, failed=1, credits=1, bytes_in=200, bytes_out=40),
            DayUsage("2030-01-02", conversions=1, failed=0, credits=1, bytes_in=10**12, bytes_out=10**12),
            DayUsage("2030-01-03", conversions=2, failed=0, credits=2, bytes_in=30, bytes_out=29),
        ),
    )
    assert all(type(number) is int for number in (report.credits_used, report.bytes_in, report.by_day[0].credits))


def test_a_period_includes_its_start_but_not_its_end(database: Database, clock: Clock) -> None:
    account = open_account(database).id
    for moment in (JANUARY - 1, JANUARY, JANUARY + DAY - 1, JANUARY + DAY):
        clock.now = moment
        record(database, account, UsageRecord("convert", "png", "webp", 1))
    assert database.run_blocking(usage.report, account, JANUARY, JANUARY + DAY).total_conversions == 2
