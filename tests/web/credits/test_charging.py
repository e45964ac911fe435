"""Charging: authentication, credits, idempotency keys, and clients that disconnect while a charge is settled."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.settings import Settings
from engine.errors import CorruptInput, ExecutorUnavailable, WorkerCrashed
from engine.registry import load_registry
from storage.database import Database, Transaction
from storage.tables import accounts, api_keys, ledger_audit, models
from tests.support.executors.fake import EndlessExecutor, FailingExecutor
from tests.support.executors.isolated import ObservedExecutor
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import FILE, FORM, TARGET, conversion_request, form, image
from tests.support.samples.generated import sample
from tests.support.samples.storage import OWNER, Clock, open_account
from tests.support.servers.in_process import Running, Servers, eventually
from web.api.errors import IdempotencyConflict
from web.app import assemble
from web.services.conversions import charging
from web.services.conversions.charging import Charge, SaveResult
from web.services.conversions.conversion_request import ConversionRequest, Upload
from web.services.conversions.idempotency import IdempotencyService, IdempotentRequest, ResponseData
from web.services.conversions.releases import Releases

JSON = {"Accept": "application/json"}
_REPLAYED = "Idempotency-Replayed"


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def paying(
    request: pytest.FixtureRequest, servers: Servers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """A server without rate limits, on each kind of database."""
    settings: dict[str, Any] = {"rate_limit_paid": 100_000, "rate_limit_free": 100_000}
    if request.param == "postgresql":
        settings["database_url"] = request.getfixturevalue("new_postgres_url")()
    with servers.running(tmp_path_factory.mktemp("paying"), **settings) as running:
        yield running


def bearer(key: str, **more: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}", **more}


def remaining(server: Running, key: str) -> int:
    """The balance in the ledger, since responses to failed conversions do not contain it."""
    return server.database.run_blocking(_balance, key)


def _balance(transaction: Transaction, key: str) -> int:
    from_key = models.Key.select().where(models.Key.key_prefix == key[:15])
    row = transaction.first(from_key)
    assert row is not None
    account = transaction.first(models.Account.select().where(models.Account.id == row.account))
    assert account is not None
    assert account.credits_held == 0
    return account.credits_remaining


def sound(server: Running) -> bool:
    return server.database.run_blocking(ledger_audit.check) == ()


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer x", "Basic abc", "Bearer cvd_live_" + "a" * 38])
def test_a_missing_or_invalid_key(server: Running, header: str | None) -> None:
    headers = {**FORM, "Authorization": header} if header is not None else FORM
    response = http.post(f"{server.api}/convert", content=form(FILE, TARGET), headers=headers)
    problem(response, 401, "invalid_api_key")
    assert response.headers["WWW-Authenticate"] == "Bearer"


def test_failed_authentications_are_limited(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        for headers in ({}, {"Authorization": "Bearer"}, {"X-API-Key": "x"}):
            assert {http.post(f"{server.api}/convert", headers=headers).status_code for _ in range(31)} == {401}
        answers = [http.post(f"{server.api}/convert", headers=bearer("x")) for _ in range(31)]
        assert [response.status_code for response in answers] == [401] * 30 + [429]
        assert int(answers[-1].headers["Retry-After"]) >= 1
        assert answers[-1].headers["X-RateLimit-Limit"] == "30"
        assert answers[-1].headers["X-RateLimit-Remaining"] == "0"
        assert answers[-1].headers["RateLimit-Policy"] == '"default";q=30;w=60'
        assert server.convert(image()).status_code == 200


def test_a_conversion_costs_a_credit(paying: Running) -> None:
    key = paying.account(credits=2)
    first = paying.convert(image(), headers=bearer(key))
    second = paying.convert(image(), headers=bearer(key, **JSON))
    assert first.headers["X-Credits-Remaining"] == "1"
    assert second.json()["meta"]["credits_remaining"] == 0
    third = paying.convert(image(), headers=bearer(key))
    problem(third, 402, "no_credits", details={"credits_remaining": 0, "credits_required": 1})
    assert sound(paying)


def test_a_failure_costs_nothing(paying: Running) -> None:
    key = paying.account(credits=1)
    problem(paying.convert(image("PNG")[:60], headers=bearer(key)), 500, "processing_failed", reason="corrupt_input")
    problem(paying.convert(b"words", headers=bearer(key)), 400, "invalid_file_type")
    problem(paying.convert(image(), "svg", headers=bearer(key)), 400, "unsupported_conversion")
    problem(paying.convert(image(), quality="0", headers=bearer(key)), 400, "invalid_parameter")
    assert remaining(paying, key) == 1
    assert sound(paying)


def test_a_conversion_without_a_process_costs_nothing(servers: Servers, data_dir: Path) -> None:
    executor = FailingExecutor(ExecutorUnavailable("No process can be started for the conversion."))
    with servers.running(data_dir, executor) as server:
        key = server.account(credits=5)
        response = server.convert(image(), headers=bearer(key))
        problem(response, 503, "not_ready", retryable=True)
        assert int(response.headers["Retry-After"]) > 0
        assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 5


def test_the_file_size_limit_depends_on_the_tier(paying: Running) -> None:
    free, paid = paying.account(), paying.account(purchased=1)
    big = bytes(10_485_761)
    details = {"max_file_size": 10_485_760}
    problem(paying.convert(big, headers=bearer(free)), 413, "file_too_large", reason="bytes", details=details)
    problem(paying.convert(big[1:], headers=bearer(free)), 400, "invalid_file_type")
    problem(paying.convert(big, headers=bearer(paid)), 400, "invalid_file_type")


def test_the_last_credit_is_spent_once(paying: Running, request: pytest.FixtureRequest) -> None:
    for _ in range(request.config.getoption("rounds")):
        key = paying.account(credits=1)
        with ThreadPoolExecutor(25) as pool:
            racing = [pool.submit(paying.convert, image(), headers=bearer(key)) for _ in range(50)]
        answers = [one.result() for one in racing]
        assert sorted(response.status_code for response in answers) == [200] + [402] * 49
        assert remaining(paying, key) == 0
    assert sound(paying)


@pytest.mark.both_databases
def test_a_disconnect_cancels_the_job_and_is_not_charged(servers: Servers, url: str, data_dir: Path) -> None:
    executor = EndlessExecutor()
    with servers.running(data_dir, executor, database_url=url) as server:
        key = server.account(credits=3)
        for _ in range(3):
            with server.connect() as connection:
                connection.sendall(conversion_request(replace(server, key=key).posting, form(FILE, TARGET)))
                assert eventually(lambda: executor.running == 1)
                assert server.work_files()
            assert eventually(lambda: executor.running == 0)
            assert eventually(lambda: not server.work_files())
        assert eventually(lambda: _settled(server, key))
        assert remaining(server, key) == 3
    assert executor.cancelled == 3


def _settled(server: Running, key: str) -> bool:
    try:
        return remaining(server, key) >= 0
    except AssertionError:  # still held
        return False


def test_a_repeated_request_gets_the_same_response(paying: Running) -> None:
    key = paying.account(credits=5)
    once = bearer(key, **{"Idempotency-Key": "order 1"})
    first, again = (paying.convert(image(), headers=once) for _ in range(2))
    described = paying.convert(image(), headers={**once, **JSON})
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert (again.status_code, again.content) == (200, first.content)
    assert described.json()["data"]["processed_size"] == len(first.content)
    assert remaining(paying, key) == 4


def test_an_idempotency_key_of_another_request_is_refused(paying: Running) -> None:
    key = paying.account()
    once = bearer(key, **{"Idempotency-Key": "order"})
    assert paying.convert(image(), headers=once).status_code == 200
    problem(paying.convert(image(), "webp", headers=once), 422, "idempotency_key_reused", param="Idempotency-Key")
    problem(paying.convert(image("BMP"), headers=once), 422, "idempotency_key_reused")
    problem(paying.convert(image(), width="20", headers=once), 422, "idempotency_key_reused")
    problem(paying.convert(image(), headers=bearer(key, **{"Idempotency-Key": "x" * 256})), 400, "invalid_parameter")
    other = bearer(paying.account(), **{"Idempotency-Key": "order"})
    assert "Idempotency-Replayed" not in paying.convert(image(), headers=other).headers


def test_a_permanent_failure_is_replayed(paying: Running) -> None:
    key = paying.account()
    once = bearer(key, **{"Idempotency-Key": "broken"})
    assert "Idempotency-Replayed" not in paying.convert(image("PNG")[:60], headers=once).headers
    for _ in range(2):
        response = paying.convert(image("PNG")[:60], headers=once)
        problem(response, 500, "processing_failed", reason="corrupt_input")
    assert response.headers["Idempotency-Replayed"] == "true"
    assert remaining(paying, key) == 50


def test_refusals_are_not_replayed(paying: Running) -> None:
    key = paying.account(credits=1)
    once = bearer(key, **{"Idempotency-Key": "one"})
    problem(paying.convert(image(), quality="0", headers=once), 400, "invalid_parameter")
    assert paying.convert(image(), headers=once).status_code == 200
    other = bearer(key, **{"Idempotency-Key": "two"})
    problem(paying.convert(image(), headers=other), 402, "no_credits")


async def test_a_conflict_is_retried_after_as_long_as_the_request_has_run(tmp_path: Path) -> None:
    clock = Clock()
    database = Database(f"sqlite:///{tmp_path / 'convertd.db'}", clock=clock)
    service = IdempotencyService(database, OWNER, Releases(database))
    request = IdempotentRequest(open_account(database).id, "/", "key")
    await service.claim(request, {})
    waits = []
    for seconds in (0, 4, 100):
        clock.now += seconds
        with pytest.raises(IdempotencyConflict) as raised:
            await service.claim(request, {})
        waits.append(raised.value.retry_after)
    database.close()
    assert waits == [1, 4, 30]


def test_a_repeat_of_a_running_request_is_a_conflict(paying: Running) -> None:
    key = paying.account()
    once = bearer(key, **{"Idempotency-Key": "slow"})
    large = image("PNG", (1200, 1200))
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(lambda _: paying.convert(large, "avif", headers=once), range(3)))
    (done,) = [response for response in answers if response.status_code == 200 and not response.headers.get(_REPLAYED)]
    for response in answers:
        if response is not done and response.status_code != 200:
            problem(response, 409, "idempotency_conflict", retryable=True)
            assert int(response.headers["Retry-After"]) >= 1
    assert paying.convert(large, "avif", headers=once).content == done.content
    assert remaining(paying, key) == 49


def test_a_failure_that_may_pass_is_not_repeated(servers: Servers, data_dir: Path) -> None:
    """A request is processed again after its process crashed, but not after its file was found to be corrupt."""
    failures = WorkerCrashed("Once."), CorruptInput("For good.")
    with servers.running(data_dir, FailingExecutor(*failures)) as server:
        headers = {"Idempotency-Key": "k"}
        made = [server.convert(image(), headers=headers) for _ in range(3)]
        assert [one.json()["error"]["reason"] for one in made] == ["worker_crashed", "corrupt_input", "corrupt_input"]
        assert [_REPLAYED in one.headers for one in made] == [False, False, True]


class CancelledCharge(Charge):
    """A charge that is cancelled before or after it is committed."""

    saves = True

    async def settle(
        self, made: Sequence[tuple[str, int]], save: SaveResult | None = None, *, alone: bool = False
    ) -> tuple[int, ResponseData | None]:
        if self.saves:
            await super().settle(made, save, alone=alone)
        raise asyncio.CancelledError


def _key(transaction: Transaction) -> str:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=2)
    return api_keys.issue(transaction, account.id, "Test").text


@pytest.mark.parametrize("saves", [True, False])
async def test_a_settled_charge_keeps_its_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saves: bool) -> None:
    monkeypatch.setattr(CancelledCharge, "saves", saves)
    monkeypatch.setattr(charging, "Charge", CancelledCharge)
    executor = ObservedExecutor(1)
    services = assemble(Settings(data_dir=tmp_path / "data"), load_registry(), executor)
    account = await services.accounts.authenticate(f"Bearer {await services.database.run(_key)}")
    file = services.work_files.create(account.id)
    await file.write(sample("png"))
    upload = Upload(file, "a.png", file.size, load_registry().formats["png"])
    request = ConversionRequest(account=account, uploads=(upload,), target="png", store_result=True)

    with services.work_files.create(account.id) as output, pytest.raises(asyncio.CancelledError):
        await services.conversions.convert(request, output)

    assert len(list((tmp_path / "data" / "blobs").iterdir())) == (1 if saves else 0)
    after = await services.database.run(accounts.get, account.id)
    assert (after.credits_remaining, after.credits_held) == ((1, 0) if saves else (2, 0))
    file.close()
    await executor.close()
    await asyncio.to_thread(services.database.close)
