"""Every statement runs on both databases, does what its query would, and reads rows by indexes where it runs often."""

import inspect
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import peewee
import pytest

from storage.database import Database, Transaction
from storage.database.transaction import Statement
from storage.tables import (
    accounts,
    api_keys,
    archives,
    audit,
    batches,
    deliveries,
    email_verification,
    files,
    idempotency,
    identities,
    job_runs,
    jobs,
    ledger,
    links,
    models,
    personal_data,
    purchases,
    receivers,
    request_log,
    servers,
    sessions,
    totals,
    usage,
    webhooks,
)
from storage.tables.api_keys import digest, parse_key
from storage.tables.request_log import LoggedRequest
from tests.support.samples.storage import CONVERTED, DAY, FAILURE, OWNER, SOURCE, USE, Clock, open_account, read_totals

pytestmark = pytest.mark.both_databases
P = ParamSpec("P")
R = TypeVar("R")
_MODULES = (
    accounts,
    api_keys,
    audit,
    batches,
    email_verification,
    files,
    identities,
    links,
    personal_data,
    request_log,
    sessions,
    totals,
    usage,
)
_EMAIL = "person@example.org"
NAMED = vars(ledger) | vars(api_keys) | vars(sessions) | vars(request_log) | vars(usage)
STATEMENTS = {name: value for name, value in NAMED.items() if isinstance(value, Statement)}
INSERTS: Mapping[str, tuple[type[Any], Mapping[str, Any]]] = {
    "INSERT_HOLD": (models.Hold, {"state": "held", "amount": 3}),
    "INSERT_ENTRY": (models.Entry, {"kind": "grant", "amount": 3, "reason": None}),
    "INSERT_USAGE": (models.Usage, {"success": True}),
    "INSERT_REQUEST": (models.Request, {"code": None, "details": None}),
}
CALLS: dict[str, Callable[[Transaction], object]] = {
    "servers.any_stopped": servers.any_stopped,
    "servers.beat": lambda transaction: servers.beat(transaction, OWNER),
    "servers.give_back": servers.give_back,
    "ledger.release_expired": ledger.release_expired,
    "idempotency.delete_expired": idempotency.delete_expired,
    "email_verification.delete_expired": email_verification.delete_expired,
    "purchases.delete_abandoned": purchases.delete_abandoned,
    "sessions.delete_expired": sessions.delete_expired,
    "files.delete_expired": lambda transaction: files.delete_expired(transaction, 500),
    "files.list_page": lambda transaction: files.list_page(
        transaction, "acct_1", processed=True, limit=50, cursor="1-file_1"
    ),
    "files.stored_bytes": lambda transaction: files.stored_bytes(transaction, "acct_1"),
    "files.most_stored_bytes": lambda transaction: files.most_stored_bytes(transaction, "acct_1"),
    "receivers.claim": lambda transaction: receivers.claim(transaction, OWNER, 32, 8, {"acct_1": 8}),
    "deliveries.list_attempts": lambda transaction: deliveries.list_attempts(
        transaction, "webhook_1", limit=50, cursor="1-a"
    ),
    "deliveries.erase_job": lambda transaction: deliveries.erase_job(transaction, "job_1"),
    "deliveries.delete_expired": lambda transaction: deliveries.delete_expired(transaction, 500),
    "webhooks.delete_expired_secrets": webhooks.delete_expired_secrets,
    "batches.delete_expired": lambda transaction: batches.delete_expired(transaction, 500),
    "job_runs.any_due": job_runs.any_due,
    "job_runs.claim": lambda transaction: job_runs.claim(transaction, OWNER, idle=True),
    "job_runs.charge": lambda transaction: job_runs.charge(transaction, "acct_1", "address 1", 1.0),
    "job_runs.find_running": lambda transaction: job_runs.find_running(transaction, OWNER),
    "job_runs.find_left": job_runs.find_left,
    "jobs.list_page": lambda transaction: jobs.list_page(transaction, "acct_1", limit=50),
    "jobs.read_all": lambda transaction: jobs.read_all(transaction, ["job_1", "job_2"]),
    "jobs.referenced_blobs": lambda transaction: jobs.referenced_blobs(transaction, ["job_1.0"]),
    "jobs.delete_expired": lambda transaction: jobs.delete_expired(transaction, 500),
    "jobs.read_state": jobs.read_state,
    "totals.read": totals.read,
    "usage.report": lambda transaction: usage.report(transaction, "acct_1", 0, 86_400),
    "archives.read": lambda transaction: archives.read(transaction, ("acct_1", 5), 86_400 * 30),
    "archives.remove": lambda transaction: archives.remove(transaction, ("acct_1", 5), 86_400 * 30),
}
SMALL = ("backfill", "counter", "counter_change", "archive", "batch_run", "server")  # tables that never have many rows
PARTIAL = (  # indexes with the few rows that are asked for
    "hold_open",
    "idempotency_running",
    "purchase_opening",
    "lane_waiting",
    "job_lease",
    "job_queued_at",
    "receiver_claim",
)


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
    _administer(run, account)
    assert run(totals.read) is None
    assert run(totals.latest) == {}
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


def _administer(run: Recorder, account: str) -> None:
    other = run(accounts.find, "other@example.org")
    assert other is not None
    run(accounts.change, account, plan="team", plan_changes="{}", role="admin")
    assert run(accounts.unknown_plans, ["free"]) == ("team",)
    found = run(accounts.search, "Person@", limit=1)
    assert [(one.id, one.plan, one.role) for one in found.values] == [(account, "team", "admin")]
    newest = run(accounts.search, "", limit=1)
    assert run(accounts.search, "", limit=1, cursor=newest.next_cursor).next_cursor is None
    assert run(accounts.emails, {account, "acct_1"}) == {account: _EMAIL}
    assert run(email_verification.invite, "other@example.org", "Other", 50).purpose == "sign_in"
    known = {"may_create": False, "free_credits": 50, "role": None}
    for email in ("other@example.org", None):
        token = run(identities.sign_in, "https://issuer", "1", email, "Other", **known)
        assert run(sessions.find, token)[0].id == other.id
    with pytest.raises(identities.NotAllowed):
        run(identities.sign_in, "https://issuer", "2", None, "Other", **known)
    run(audit.record, account, "set", other.id, plan="team", role=None)
    actions = run(audit.list_page, limit=10)
    assert (account, '{"plan": "team"}') in [(one.actor, one.details) for one in actions.values]  # of one second
    exported = run(personal_data.export, account)
    assert (exported["account"][0]["email"], len(exported["files"])) == (_EMAIL, 3)
    assert all("sha256" not in row for rows in exported.values() for row in rows)


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
    attempt = run(batches.begin, account, batch.batch_id, "webp", OWNER)
    run(files.extend_batch, batch.batch_id, 2 * DAY)
    run(batches.end, batch.batch_id, attempt)
    assert len(run(batches.list_files, run(batches.get, account, batch.batch_id))) == 1
    assert run(batches.latest_results, run(batches.get, account, batch.batch_id)) == {}


def _log(run: Recorder, account: str, clock: Clock) -> None:
    request = LoggedRequest("req_1", account, "GET", "/api/v1/account", 200, None, 3, int(clock.now * 1000))
    run(request_log.record, [request])
    assert run(request_log.latest, account) == (request,)
    run(usage.record, account, USE, success=True, credits=1)
    assert run(usage.report, account, int(clock.now) - DAY, int(clock.now) + DAY).total_conversions == 1


def run(database: Database, name: str, **values: Any) -> list[tuple[Any, ...]]:
    return database.run_blocking(lambda transaction: transaction.execute_statement(STATEMENTS[name], **values))


def rows(database: Database, table: type[Any], account: str) -> list[Any]:
    return database.run_blocking(lambda transaction: transaction.all(table.select().where(table.account == account)))


def account_row(database: Database, account: str) -> models.Account:
    (row,) = database.run_blocking(
        lambda transaction: transaction.all(models.Account.select().where(models.Account.id == account))
    )
    return row


def row_of(table: type[Any], account: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """A row with a distinct value in each column."""
    columns = enumerate(field.column_name for field in table._meta.sorted_fields)
    types = {field.column_name: field.field_type for field in table._meta.sorted_fields}
    row = {name: number + 10 if types[name] == "BIGINT" else f"{name}_{account}" for number, name in columns}
    return row | {"account": account} | dict(values)


@pytest.mark.parametrize("name", INSERTS)
def test_inserts_fill_every_column(database: Database, name: str) -> None:
    table, values = INSERTS[name]
    account = open_account(database, 0).id
    row = row_of(table, account, values)
    assert run(database, name, **row) == []
    (inserted,) = rows(database, table, account)
    assert {column: getattr(inserted, column) for column in row} == row


@pytest.mark.parametrize("revoked_at", [None, 1])
@pytest.mark.parametrize(("expires_in", "valid"), [(None, True), (1, True), (0, False)])
def test_valid_keys_are_found(
    database: Database, clock: Clock, revoked_at: int | None, expires_in: int | None, valid: bool
) -> None:
    account, now = open_account(database), int(clock())
    issued = database.run_blocking(api_keys.issue, account.id, "a key")
    token, _ = database.run_blocking(sessions.begin, digest(issued.text))
    expires_at = None if expires_in is None else now + expires_in
    own = models.Key.key_id == issued.key.key_id
    change = models.Key.update(revoked_at=revoked_at, expires_at=expires_at).where(own)
    database.run_blocking(lambda transaction: transaction.execute(change))
    key = replace(issued.key, expires_at=expires_at, last_used_at=now)
    for found, of_key in (
        (run(database, "SELECT_BY_SHA256", sha256=digest(issued.text), now=now), tuple(vars(key).values())),
        (run(database, "SELECT_BY_SESSION", sha256=digest(token), now=now), (key.key_id,)),
    ):
        assert bool(found) == (valid and revoked_at is None)
        for row in found:
            assert row == (*vars(replace(account, last_used_at=now)).values(), *of_key)


@pytest.mark.parametrize("name", ["SELECT_BY_SHA256", "SELECT_BY_SESSION"])
@pytest.mark.parametrize("value", ["", "' OR '1'='1", "%s", "?", ":now"])
def test_values_are_not_sql(database: Database, name: str, value: str) -> None:
    database.run_blocking(api_keys.issue, open_account(database).id, "a key")
    assert run(database, name, sha256=value, now=0) == []


def test_a_statement_runs_once_per_row(database: Database) -> None:
    accounts = [open_account(database).id for _ in range(3)]
    rename = Statement("UPDATE account SET name = :name WHERE id = :id")

    def run_all(transaction: Transaction) -> None:
        transaction.execute_many(rename, ({"id": account, "name": f"name of {account}"} for account in accounts))

    database.run_blocking(run_all)
    assert [account_row(database, account).name for account in accounts] == [f"name of {one}" for one in accounts]


def scans_of_sqlite(transaction: Transaction, sql: str, values: Any) -> Iterator[str]:
    """The steps of a plan that read a whole table or a whole index."""
    for *_, step in transaction.connection.execute_sql(f"EXPLAIN QUERY PLAN {sql}", values).fetchall():
        found = re.match(r"SCAN (\w+)(?:.* INDEX (\w+))?", step)
        if found and found[1] not in (*SMALL, "CONSTANT", "first", "t1") and found[2] not in PARTIAL:
            yield step


def scans_of_postgresql(transaction: Transaction, sql: str, values: Any) -> Iterator[str]:
    """The nodes of a plan that read a whole table or a whole index."""
    for plan_of_small_tables in ("seqscan", "hashjoin", "mergejoin"):  # the tables here are almost empty
        transaction.connection.execute_sql(f"SET LOCAL enable_{plan_of_small_tables} = off")
    ((plan,),) = transaction.connection.execute_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).fetchall()
    nodes = [plan[0]["Plan"]]
    while nodes:
        node = nodes.pop()
        nodes += node.get("Plans", [])
        by_index = "Index Cond" in node or "Recheck Cond" in node or node.get("Index Name") in PARTIAL
        if (
            "Scan" in node["Node Type"]
            and "Relation Name" in node
            and node["Relation Name"] not in SMALL
            and not by_index
        ):
            yield f"{node['Node Type']} of {node['Relation Name']} by {node.get('Index Name')}"


def test_no_table_is_scanned(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    open_account(database)
    read_totals(database)

    def scans(transaction: Transaction, statements: list[Any]) -> list[tuple[str, str]]:
        sqlite = isinstance(transaction.connection, peewee.SqliteDatabase)
        find = scans_of_sqlite if sqlite else scans_of_postgresql
        return [(sql, step) for sql, values in statements for step in find(transaction, sql, values)]

    def run(transaction: Transaction, call: Callable[[Transaction], object]) -> int:
        call(transaction)
        return threading.get_ident()

    found = {}
    for name, call in CALLS.items():
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "peewee"):
            thread = database.run_blocking(run, call)  # servers of other tests run statements in other threads
        records = [record for record in caplog.records if record.thread == thread]
        statements: list[Any] = [record.msg for record in records if record.name == "peewee"]
        queries = [one for one in statements if one[0].startswith(("SELECT", "UPDATE", "DELETE", "INSERT"))]
        assert queries
        found[name] = database.run_blocking(scans, queries)
    assert not any(found.values()), found
