"""Batches: states, limits, failures of single files, and a server that is killed."""

import io
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import httpx
import pytest

from benchmarks.processes import ConvertdServer
from engine.errors import ExecutorUnavailable
from storage.database import Transaction
from storage.tables import ledger_audit, models
from tests.support.executors.fake import FailingExecutor
from tests.support.requests import http
from tests.support.requests.batches import add, convert, counts, create, known
from tests.support.requests.checks import problem
from tests.support.samples.corpus import Entry, load_corpus
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.load import charged, create_accounts, sqlite_url

BROKEN = image("PNG")[:60]
BROKEN_CORPUS = ("bad/truncated.png", "bad/truncated_half.cr2", "bad/truncated.webp")
_FILES = 12


def made(server: Running, *contents: bytes, credits: int = 50) -> tuple[str, str, list[str]]:
    """A batch with these files: the key of its account, its id, and the ids of the files."""
    key = server.account(credits=credits)
    batch = create(server, key)
    return key, batch, add(server, batch, key, *contents)


def test_a_new_batch_is_empty(either: Running) -> None:
    key = either.account(credits=0)
    response = either.request("POST", "/batch", key, json={"output_format": "JPG"})
    data = response.json()["data"]
    assert (data["output_format"], data["status"], data["max_files"]) == ("jpeg", "created", 50)
    assert data["expires_at"] > data["created_at"]
    assert counts(known(either, data["batch_id"], key)) == ("created", 0, 0, 0, 0)


def test_added_files_are_not_converted(either: Running) -> None:
    key = either.account(credits=0)
    batch = create(either, key)
    data = either.upload(image(), "a.jpg", f"/batch/{batch}/files", key)
    assert (data["batch_id"], data["total"], data["status"], data["extension"]) == (batch, 1, "pending", "jpg")
    assert counts(known(either, batch, key)) == ("created", 1, 1, 0, 0)
    file = either.request("GET", f"/files/{data['file_id']}", key).json()["data"]
    assert (file["batch_id"], file["status"]) == (batch, "pending")


def test_converting_all_files(either: Running) -> None:
    key, batch, ids = made(either, image(), image("BMP"), image("TIFF"))
    response = convert(either, batch, key, [ids[2], ids[0], ids[1], ids[0]], "webp")
    data, meta = response.json()["data"], response.json()["meta"]
    assert response.status_code == 200
    assert (data["total"], data["successful"], data["failed"], meta["credits_remaining"]) == (3, 3, 0, 47)
    assert [entry["file_id"] for entry in data["results"]] == [ids[2], ids[0], ids[1]]
    for entry in data["results"]:
        assert (entry["status"], entry["output_format"]) == ("success", "webp")
        path = entry["download_url"].removeprefix("/api/v1")
        assert len(either.request("GET", path, key).content) == entry["processed_size"]
    assert counts(known(either, batch, key)) == ("completed", 3, 0, 3, 0)
    assert known(either, batch, key)["output_format"] == "webp"
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_converting_some_files_and_then_the_rest(either: Running) -> None:
    key, batch, ids = made(either, image(), BROKEN, image())
    data = convert(either, batch, key, ids[:2]).json()["data"]
    assert (data["successful"], data["failed"]) == (1, 1)
    failed = data["results"][1]
    assert (failed["status"], failed["download_url"]) == ("failed", None)
    assert (failed["error"]["code"], failed["error"]["reason"]) == ("processing_failed", "corrupt_input")
    assert counts(known(either, batch, key)) == ("partial", 3, 1, 1, 1)
    files = known(either, batch, key)["files"]
    assert [file["status"] for file in files] == ["processed", "pending", "pending"]
    assert files[1]["error"]["reason"] == "corrupt_input"
    convert(either, batch, key, ids[2:])
    assert counts(known(either, batch, key)) == ("partial", 3, 0, 2, 1)


def test_only_failures(either: Running) -> None:
    key, batch, ids = made(either, BROKEN)
    response = convert(either, batch, key, ids)
    assert (response.status_code, response.json()["data"]["failed"]) == (200, 1)
    assert response.json()["meta"]["credits_remaining"] == 50
    assert counts(known(either, batch, key)) == ("failed", 1, 0, 0, 1)


def test_a_refusal_leaves_it_created(either: Running) -> None:
    key, batch, ids = made(either, image(), credits=0)
    problem(convert(either, batch, key, ids), 402, "no_credits")
    assert counts(known(either, batch, key)) == ("created", 1, 1, 0, 0)
    assert known(either, batch, key)["files"][0]["error"] is None


def test_unknown_ids_alone_change_no_state(either: Running) -> None:
    key = either.account()
    batch = create(either, key)
    add(either, batch, key, image())
    outside = either.upload(image(), key=key)["file_id"]
    assert convert(either, batch, key, ["no id", outside]).json()["data"]["failed"] == 2
    assert counts(known(either, batch, key)) == ("created", 1, 1, 0, 0)
    assert either.request("GET", f"/files/{outside}", key).json()["data"]["error"] is None


def test_failures_of_every_reason_are_counted(either: Running) -> None:
    key, batch, ids = made(either, image("BMP"), sample("pdf"), sample("pdf"), credits=1)
    convert(either, batch, key, ids, "svg")
    data = known(either, batch, key)
    assert counts(data) == ("partial", 3, 0, 1, 2)
    codes = [file["error"] and file["error"]["code"] for file in data["files"]]
    assert codes[0] == "unsupported_conversion"
    assert {*codes[1:]} == {None, "no_credits"}


def test_a_second_conversion_creates_another_file(either: Running) -> None:
    key, batch, ids = made(either, image())
    first, second = (convert(either, batch, key, ids, target).json()["data"]["results"][0] for target in ("png", "gif"))
    assert first["file_id"] == second["file_id"] == first["result_file_id"] == ids[0]
    assert second["download_url"] == f"/api/v1/files/{second['result_file_id']}/download" != first["download_url"]
    described = known(either, batch, key)
    assert counts(described) == ("completed", 1, 0, 1, 0)
    (file,) = described["files"]
    assert (file["file_id"], file["result_file_id"]) == (ids[0], second["result_file_id"])
    assert (file["download_url"], file["output_format"]) == (second["download_url"], "gif")
    archive = either.request("GET", f"/batch/{batch}/download", key).content
    assert ZipFile(io.BytesIO(archive)).namelist() == ["photo.gif"]
    assert either.request("GET", first["download_url"].removeprefix("/api/v1"), key).status_code == 200

    either.request("POST", f"/files/{ids[0]}/convert", key, json={"output_format": "bmp"})  # no run of the batch
    assert known(either, batch, key)["files"] == [file]


def test_a_second_conversion_that_fails(either: Running) -> None:
    key, batch, ids = made(either, image(), image())
    convert(either, batch, key, ids)
    body = {"file_ids": ids[:1], "output_format": "png", "pages": "9"}
    either.request("POST", f"/batch/{batch}/convert", key, json=body)
    assert counts(known(either, batch, key)) == ("partial", 2, 0, 1, 1)
    convert(either, batch, key, ids)
    assert counts(known(either, batch, key)) == ("completed", 2, 0, 2, 0)


def test_credits_run_out_midway(either: Running) -> None:
    key, batch, ids = made(either, *[image()] * 4, credits=2)
    response = convert(either, batch, key, ids)
    data = response.json()["data"]
    assert (data["successful"], data["failed"], response.json()["meta"]["credits_remaining"]) == (2, 2, 0)
    assert {entry["error"]["code"] for entry in data["results"] if entry["status"] == "failed"} == {"no_credits"}
    problem(convert(either, batch, key, ids), 402, "no_credits")
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_a_repeat_is_charged_once(either: Running) -> None:
    key, batch, ids = made(either, image(), BROKEN)
    once: dict[str, Any] = {"headers": {"Idempotency-Key": "once"}}
    first, again = (convert(either, batch, key, ids, **once) for _ in range(2))
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json()["data"] == first.json()["data"]
    assert again.json()["meta"]["credits_remaining"] == 49
    problem(convert(either, batch, key, ids[:1], **once), 422, "idempotency_key_reused")


def test_a_repeat_needs_no_files_for_what_is_done(either: Running) -> None:
    key, batch, ids = made(either, image())
    mark = either.upload(image(), "mark.png", key=key)["file_id"]
    once = {"headers": {"Idempotency-Key": "once"}}
    body = {"output_format": "png", "file_ids": ids, "watermark": mark}
    first = either.request("POST", f"/batch/{batch}/convert", key, json=body, **once).json()["data"]
    assert either.request("DELETE", f"/files/{mark}", key).status_code == 200
    # As if the server had been killed before the end of the first request.
    claim = models.Idempotency.path.endswith("/convert")
    either.database.run_blocking(Transaction.execute, models.Idempotency.delete().where(claim))

    again = either.request("POST", f"/batch/{batch}/convert", key, json=body, **once)

    assert "Idempotency-Replayed" not in again.headers
    assert again.json()["data"] == first
    assert again.json()["meta"]["credits_remaining"] == 49


def test_a_batch_has_a_maximum_size(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, max_batch_files=2, rate_limit_paid=1000) as server:
        batch = create(server)
        add(server, batch, "", image(), image())
        third = server.request("POST", f"/batch/{batch}/files", files={"file": image()})
        problem(third, 400, "invalid_parameter", param="file")
        problem(convert(server, batch, "", ["a", "b", "c"]), 400, "invalid_parameter", param="file_ids")
        assert server.request("GET", "/account").json()["data"]["limits"]["max_batch_files"] == 2
        assert not list((data_dir / "blobs").rglob("*tmp*"))


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"output_format": "png"}, "file_ids"),
        ({"output_format": "png", "file_ids": []}, "file_ids"),
        ({"output_format": "png", "file_ids": "file_1"}, "file_ids"),
        ({"output_format": "png", "file_ids": ["a", 1]}, "file_ids"),
        ({"output_format": "png", "file_ids": ["a"] * 51}, "file_ids"),
        ({"file_ids": ["a"]}, "output_format"),
        ({"output_format": "png", "file_ids": ["a"], "quality": "9"}, "quality"),
    ],
)
def test_parameters(server: Running, body: dict[str, object], param: str) -> None:
    path = f"/batch/{create(server)}/convert"
    problem(server.request("POST", path, json=body), 400, "invalid_parameter", param=param)


def test_refusals(server: Running) -> None:
    problem(server.request("POST", "/batch", json={}), 400, "invalid_parameter", param="output_format")
    problem(server.request("POST", "/batch", json={"output_format": "xyz"}), 400, "unsupported_conversion")
    problem(server.request("POST", "/batch", json={"output_format": "cr2"}), 400, "unsupported_conversion")
    problem(server.request("GET", "/batch/batch_x"), 404, "not_found")
    for content in (image(), b"\0words"):
        problem(server.request("POST", "/batch/batch_x/files", files={"file": content}), 404, "not_found")
    problem(convert(server, "batch_x", "", ["a"]), 404, "not_found")
    problem(convert(server, create(server), "", ["a"], "xyz"), 400, "unsupported_conversion")
    problem(
        server.request("POST", f"/batch/{create(server)}/files", files={"file": b"\0words"}), 400, "invalid_file_type"
    )


def test_files_that_wait_fail_with_what_all_need(servers: Servers, data_dir: Path) -> None:
    """An account without purchases converts two at a time."""
    lost = FailingExecutor(*(ExecutorUnavailable("No worker responds.") for _ in range(2)))
    with servers.running(data_dir, lost) as server:
        key = server.account()
        batch = create(server, key)
        data = convert(server, batch, key, add(server, batch, key, *[image()] * 5), "webp").json()["data"]
        assert [entry["error"]["code"] for entry in data["results"]] == ["not_ready"] * 5
        assert server.request("GET", "/account", key).json()["meta"]["credits_remaining"] == 50


def _mixed() -> list[Entry]:
    """The smallest valid files, with a broken one at intervals."""
    sound = [entry for entry in load_corpus() if entry.sound and entry.measured != "needs-password"]
    chosen = sorted(sound, key=lambda entry: entry.path.stat().st_size)[: 50 - len(BROKEN_CORPUS)]
    for place, entry in enumerate(entry for entry in load_corpus() if entry.name in BROKEN_CORPUS):
        chosen.insert(place * 20 + 5, entry)
    return chosen


@pytest.mark.skipif(not load_corpus(), reason="the corpus is not here")
def test_fifty_files_of_which_three_are_broken(server: Running) -> None:
    key = server.account(credits=60)
    batch = create(server, key)
    mixed = _mixed()
    path = f"/batch/{batch}/files"
    ids = [server.upload(entry.path.read_bytes(), entry.path.name, path, key)["file_id"] for entry in mixed]
    response = convert(server, batch, key, ids)
    data = response.json()["data"]
    failed = {entry.name for entry, result in zip(mixed, data["results"], strict=True) if result["status"] == "failed"}
    assert failed == set(BROKEN_CORPUS)
    codes = {result["error"]["code"] for result in data["results"] if result["status"] == "failed"}
    assert codes == {"processing_failed"}
    assert (data["total"], data["successful"], data["failed"]) == (50, 47, 3)
    assert response.json()["meta"]["credits_remaining"] == 13
    assert counts(known(server, batch, key)) == ("partial", 50, 0, 47, 3)
    assert server.database.run_blocking(ledger_audit.check) == ()


def _known(api: httpx.Client, batch: str) -> Any:
    return api.get(f"/batch/{batch}").json()["data"]


def _convert_batch(api: httpx.Client, batch: str, body: Mapping[str, object]) -> httpx.Response:
    return api.post(f"/batch/{batch}/convert", json=body, headers={"Idempotency-Key": "once"}, timeout=60)


def _convert_until_killed(api: httpx.Client, batch: str, body: Mapping[str, object]) -> None:
    with suppress(httpx.TransportError):
        _convert_batch(api, batch, body)


@pytest.mark.slow
@pytest.mark.long
def test_a_batch_that_is_cut_off_is_charged_once(tmp_path: Path) -> None:
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    headers = {"Authorization": f"Bearer {key}"}
    server = ConvertdServer(tmp_path)
    with server, http.Client(base_url=server.api, headers=headers) as api:
        batch = api.post("/batch", json={"output_format": "png"}).json()["data"]["batch_id"]
        large = image("JPEG", (700, 500))
        files = [api.post(f"/batch/{batch}/files", files={"file": large}).json()["data"] for _ in range(_FILES)]
        body = {"output_format": "png", "file_ids": [file["file_id"] for file in files]}
        client_thread = threading.Thread(target=_convert_until_killed, args=(api, batch, body))
        client_thread.start()
        assert eventually(lambda: _known(api, batch)["processed"] >= 3)
        assert _known(api, batch)["status"] == "processing"
        server.process.kill()
        client_thread.join()
    with server, http.Client(base_url=server.api, headers=headers) as api:
        before = _known(api, batch)
        assert before["status"] == "partial"
        assert 3 <= before["processed"] < _FILES
        data = _convert_batch(api, batch, body).json()["data"]
        again = _convert_batch(api, batch, body)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json()["data"] == data
        assert (data["successful"], data["failed"]) == (_FILES, 0)
        assert _known(api, batch)["status"] == "completed"
        for entry in data["results"]:
            path = entry["download_url"].removeprefix("/api/v1")
            assert len(api.get(path).content) == entry["processed_size"]
    assert charged(sqlite_url(tmp_path)) == _FILES
