"""Every statement about accounts, keys, files, batches and usage runs on both databases."""

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import ParamSpec, TypeVar

import pytest

from storage.database import Database
from storage.tables import (
    accounts,
    api_keys,
    batches,
    email_verification,
    files,
    ledger,
    links,
    models,
    request_log,
    sessions,
    totals,
    usage,
)
from storage.tables.api_keys import parse_key
from storage.tables.request_log import LoggedRequest
from tests.support.samples.storage import CONVERTED, DAY, FAILURE, OWNER, SOURCE, USE, Clock

pytestmark = pytest.mark.both_databases

P = ParamSpec("P")
R = TypeVar("R")
_MODULES = (accounts, api_keys, batches, email_verification, files, links, request_log, sessions, totals, usage)
_EMAIL = "person@example.org"


class Recorder:
    """Runs functions in transactions, and collects their names."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.names: set[str] = set()

    def __call__(self, function: Callable[..., R], *args: object, **kwargs: object) -> R:
        self.names.add(f"{function.__module__}.{function.__name__}")
        return self._database.run_blocking(function, *args, **kwargs)


def _functions(module: ModuleType) -> set[str]:
    """The public functions of the module that take a transaction first."""
    return {
        f"{module.__name__}.{name}"
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__
        and not name.startswith("_")
        and next(iter(inspect.signature(function).parameters), "") == "transaction"
    }


def test_every_statement(database: Database, clock: Clock) -> None:
    run = Recorder(database)
    account = _register(run)
    _use_keys(run, account)
    _store_files(run, account)
    _convert_batch(run, account)
    assert run(totals.read) is None
    run(totals.begin, run(totals.count))
    stock = run(totals.read)
    assert stock is not None
    assert (stock.free_accounts, stock.balance, stock.pending_files, stock.processed_files) == (2, 60, 2, 1)
    _log(run, account, clock)
    clock.now += 3 * DAY
    assert set(run(files.delete_expired, 10)) == {"up_1", "blob_1"}
    assert run(batches.delete_expired, 10) == 1
    assert run(files.delete_all, account) == ()
    assert run(accounts.delete, _EMAIL) == ()
    assert [other.email for other in run(accounts.list_all)] == ["other@example.org"]
    stock = run(totals.read)
    assert stock is not None
    assert (stock.free_accounts, stock.balance, stock.bytes) == (1, 0, 0)

    assert {name for module in _MODULES for name in _functions(module)} - run.names == set()


def _register(run: Recorder) -> str:
    assert not run(accounts.any_exists)
    registration = run(email_verification.register, _EMAIL, "Person")
    account = run(email_verification.verify, registration.token, free_credits=50).account
    assert run(accounts.any_exists)
    assert run(email_verification.delete_expired) == 0
    other = run(accounts.create, "other@example.org", "Other", free_credits=0, verified=False)
    run(accounts.mark_verified, other.id)
    assert run(accounts.grant, _EMAIL, 15) == 65
    assert run(accounts.grant, _EMAIL, -5, reason="too many") == 60
    assert {grant.amount for grant in run(ledger.list_grants, account.id)} == {50, 15, -5}
    found = run(accounts.get, account.id)
    assert (run(accounts.find, _EMAIL.upper()), found.credits_remaining) == (found, 60)
    return account.id


def _use_keys(run: Recorder, account: str) -> None:
    issued = run(api_keys.issue, account, "second")
    assert len(run(api_keys.list_keys, account)) == 2
    run(api_keys.revoke, account, run(api_keys.add, account, "third").key.key_id)
    parsed = parse_key(issued.text)
    run(api_keys.record_use, account, issued.key.key_id)
    run(api_keys.check_valid, account, issued.key.key_id)
    token, owner = run(sessions.begin, parsed)
    assert owner.id == account
    assert run(sessions.find, token) == (run(api_keys.authenticate, parsed)[0], issued.key.key_id)
    run(sessions.end, token)
    assert run(sessions.find, run(sessions.begin_without_key, account))[1] is None
    requested = run(email_verification.request_sign_in, _EMAIL)
    assert requested is not None
    assert run(sessions.find, run(email_verification.sign_in, requested.token))[0].id == account
    assert run(sessions.delete_expired) == 0
    rotated = run(api_keys.rotate, account, issued.key.key_id, 0)
    assert len(run(api_keys.list_keys, account)) == 2
    run(api_keys.revoke, account, rotated.key.key_id)
    assert len(run(api_keys.list_keys, account)) == 1


def _store_files(run: Recorder, account: str) -> None:
    uploaded = run(files.add, account, SOURCE, DAY)
    run(files.mark_failed, account, uploaded.file_id, FAILURE)
    processed = run(files.mark_processed, account, uploaded.file_id, SOURCE, CONVERTED, DAY)
    assert run(files.get, account, processed.file_id) == processed == run(files.find_by_result, account, "blob_1")
    assert run(files.get_all, account, [processed.file_id]) == (processed,)
    assert run(files.list_page, account, processed=True, limit=1, cursor=None).values == (processed,)
    assert run(links.find, run(links.create, processed, 60).token) == processed
    assert run(files.get_of_any_account, processed.file_id) == processed
    recorded = run(files.add_processed, account, SOURCE, CONVERTED, DAY)
    size = 2 * (SOURCE.original_size + CONVERTED.size)
    assert run(files.stored_bytes, account) == run(files.most_stored_bytes, account) == size
    run(files.delete, account, recorded.file_id)
    run(files.add, account, SOURCE, DAY)
    assert len(run(files.select, models.File.account == account)) == 2
    assert run(files.referenced_blobs, ["up_1", "orphan"]) == {"up_1"}


def _convert_batch(run: Recorder, account: str) -> None:
    batch = run(batches.create, account, "png", DAY)
    run(batches.add_file, account, batch.batch_id, SOURCE, 5, DAY)
    attempt = run(batches.begin, account, batch.batch_id, "webp", OWNER, 60)
    run(batches.renew, batch.batch_id, attempt, 60)
    run(files.extend_batch, batch.batch_id, 2 * DAY)
    run(batches.end, batch.batch_id, attempt)
    assert run(batches.recover, OWNER) == 0
    assert len(run(batches.list_files, run(batches.get, account, batch.batch_id))) == 1


def _log(run: Recorder, account: str, clock: Clock) -> None:
    request = LoggedRequest("req_1", account, "GET", "/api/v1/account", 200, None, 3, int(clock.now * 1000))
    run(request_log.record, [request])
    assert run(request_log.latest, account) == (request,)
    run(usage.record, account, USE, success=True, credits=1)
    assert run(usage.report, account, int(clock.now) - DAY, int(clock.now) + DAY).total_conversions == 1
