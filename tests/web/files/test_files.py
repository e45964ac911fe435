"""Stored files: every state, every status of each endpoint, their list, and ids of other accounts."""

import io
import logging
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from PIL import Image

from config.pricing import DEFAULT_PLANS
from engine.registry import load_registry
from storage.database import Transaction
from storage.tables import accounts, ledger_audit, models
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running
from web.api.values import API
from web.routes import api_routes

KNOWN_AT_ONCE = {
    "status": "pending",
    "original_name": "photo.JPG",
    "extension": "jpg",
    "input_format": "jpeg",
    "output_format": None,
    "processed_size": None,
    "reduction_percent": None,
    "download_url": None,
    "batch_id": None,
    "source_file_id": None,
    "error": None,
    "processed_at": None,
}
FORMAT = {"json": {"output_format": "png"}}
BODIES: dict[str, dict[str, Any]] = {
    "/files/{file}/convert": FORMAT,
    "/files/{file}/links": {"json": {}},
    "/batch/{batch}/files": {"files": {"file": image()}},
    "/batch/{batch}/convert": {"json": {"output_format": "png", "file_ids": ["x"]}},
    "/account/keys/{key}/rotate": {"json": {}},
}
PATHS = (
    ("GET", "/files/{file}"),
    ("DELETE", "/files/{file}"),
    ("POST", "/files/{file}/convert"),
    ("GET", "/files/{file}/download"),
    ("POST", "/files/{file}/links"),
    ("GET", "/links/{file}"),
    ("GET", "/batch/{batch}"),
    ("POST", "/batch/{batch}/files"),
    ("POST", "/batch/{batch}/convert"),
    ("GET", "/batch/{batch}/download"),
    ("GET", "/jobs/{job}"),
    ("DELETE", "/jobs/{job}"),
    ("GET", "/jobs/{job}/events"),
    ("DELETE", "/account/keys/{key}"),
    ("POST", "/account/keys/{key}/rotate"),
    ("DELETE", "/webhooks/{webhook}"),
    ("POST", "/webhooks/{webhook}/rotate"),
    ("POST", "/webhooks/{webhook}/test"),
    ("GET", "/webhooks/{webhook}/deliveries"),
    ("POST", "/webhooks/deliveries/{delivery}/redeliver"),
    ("GET", "/presets/{preset}"),
    ("DELETE", "/presets/{preset}"),
)


def status(server: Running, file_id: str, key: str = "") -> Any:
    response = server.request("GET", f"/files/{file_id}", key)
    assert response.status_code == 200
    return response.json()["data"]


def convert(server: Running, file_id: str, target: str = "png", key: str = "", **body: Any) -> Any:
    response = server.request("POST", f"/files/{file_id}/convert", key, json={"output_format": target, **body})
    assert response.status_code == 200, response.text
    return response.json()["data"]


def credits(server: Running, key: str) -> int:
    return int(server.request("GET", "/account", key).json()["meta"]["credits_remaining"])


def test_an_upload_is_pending(either: Running) -> None:
    key = either.account()
    content = image()
    response = either.request("POST", "/files/upload", key, files={"file": ("photo.JPG", content)})
    data, meta = response.json()["data"], response.json()["meta"]
    assert response.status_code == 200
    assert (data["extension"], data["size"], data["original_name"]) == ("jpg", len(content), "photo.JPG")
    assert meta == {"request_id": response.headers["X-Request-Id"], "credits_remaining": 50}
    known = status(either, data["file_id"], key)
    assert KNOWN_AT_ONCE.items() <= known.items()
    assert known["original_size"] == known["size"] == len(content)
    problem(either.request("GET", f"/files/{data['file_id']}/download", key), 404, "not_found", reason="not_processed")
    assert status(either, data["file_id"], key)["status"] == "pending"


def test_a_conversion_makes_it_processed(either: Running) -> None:
    key = either.account()
    file_id = either.upload(image(), key=key)["file_id"]
    response = either.request("POST", f"/files/{file_id}/convert", key, json={"output_format": "PNG"})
    data = response.json()["data"]
    assert response.json()["meta"]["credits_remaining"] == 49
    assert data["file_id"] == file_id
    assert (data["input_format"], data["output_format"]) == ("jpeg", "png")
    assert data["reduction_percent"] == round((1 - data["processed_size"] / data["original_size"]) * 100, 1)
    assert data["warnings"] == []
    known = status(either, file_id, key)
    assert (known["status"], known["download_url"]) == ("processed", f"/api/v1/files/{file_id}/download")
    download = either.request("GET", f"/files/{file_id}/download", key)
    assert download.status_code == 200
    assert len(download.content) == data["processed_size"]
    assert Image.open(io.BytesIO(download.content)).format == "PNG"
    assert download.headers["Content-Type"] == "image/png"
    assert "photo.png" in download.headers["Content-Disposition"]
    assert download.headers["X-Content-Type-Options"] == "nosniff"
    assert status(either, file_id, key)["status"] == "processed"


def test_converted_again_it_is_another_file(either: Running) -> None:
    key = either.account()
    first = either.upload(image(), key=key)["file_id"]
    convert(either, first, key=key)
    before = either.request("GET", f"/files/{first}/download", key).content
    second = convert(either, first, "webp", key, quality=50)["file_id"]
    assert second != first
    assert credits(either, key) == 48
    known = status(either, second, key)
    assert (known["source_file_id"], known["status"], known["output_format"]) == (first, "processed", "webp")
    assert either.request("GET", f"/files/{first}/download", key).content == before
    assert Image.open(io.BytesIO(either.request("GET", f"/files/{second}/download", key).content)).format == "WEBP"
    assert either.request("DELETE", f"/files/{first}", key).status_code == 200
    assert either.request("GET", f"/files/{second}/download", key).status_code == 200
    assert convert(either, second, "bmp", key)["input_format"] == "webp"  # the upload is erased


def test_a_failure_leaves_it_pending(either: Running) -> None:
    key = either.account()
    file_id = either.upload(image("PNG")[:60], "cut.png", key=key)["file_id"]
    response = either.request("POST", f"/files/{file_id}/convert", key, json={"output_format": "jpeg"})
    problem(response, 500, "processing_failed", reason="corrupt_input")
    known = status(either, file_id, key)
    assert known["status"] == "pending"
    assert known["error"].items() >= {"code": "processing_failed", "reason": "corrupt_input"}.items()
    assert credits(either, key) == 50


def test_two_conversions_at_once_are_two_files(either: Running) -> None:
    key = either.account()
    file_id = either.upload(image(), key=key)["file_id"]
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda target: convert(either, file_id, target, key), ["png", "webp"]))
    assert len({one["file_id"] for one in made}) == 2
    assert file_id in {one["file_id"] for one in made}
    assert credits(either, key) == 48
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_deleted_it_is_gone(either: Running) -> None:
    key = either.account()
    file_id = either.upload(image(), key=key)["file_id"]
    convert(either, file_id, key=key)
    assert either.request("DELETE", f"/files/{file_id}", key).json()["data"] == {"file_id": file_id, "deleted": True}
    for method, path in (("GET", ""), ("GET", "/download"), ("DELETE", ""), ("POST", "/convert")):
        body = {"json": {"output_format": "png"}} if method == "POST" else {}
        problem(either.request(method, f"/files/{file_id}{path}", key, **body), 404, "not_found")


def test_results_of_one_request_are_stored(either: Running) -> None:
    made = either.convert(image(), headers={"Accept": "application/json"}).json()["data"]
    known = status(either, made["file_id"])
    assert known["status"] == "processed"
    assert made.pop("kind") == "result"
    assert made.items() <= known.items()
    assert convert(either, made["file_id"], "gif")["input_format"] == "png"


def test_a_repeat_is_charged_once(either: Running) -> None:
    key = either.account()
    file_id = either.upload(image(), key=key)["file_id"]
    request = {"json": {"output_format": "png"}, "headers": {"Idempotency-Key": "once"}}
    first, again = (either.request("POST", f"/files/{file_id}/convert", key, **request) for _ in range(2))
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json()["data"] == first.json()["data"]
    assert credits(either, key) == 49
    other = {**request, "json": {"output_format": "webp"}}
    problem(either.request("POST", f"/files/{file_id}/convert", key, **other), 422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "output_format"),
        ({"output_format": 5}, "output_format"),
        ({"output_format": "../png"}, "output_format"),
        ({"output_format": "png", "quality": True}, "quality"),
        ({"output_format": "png", "password": 7}, "password"),
    ],
)
def test_parameters(server: Running, body: dict[str, object], param: str) -> None:
    file_id = server.upload(image())["file_id"]
    problem(server.request("POST", f"/files/{file_id}/convert", json=body), 400, "invalid_parameter", param=param)


def test_refusals(either: Running) -> None:
    key = either.account(credits=0)
    file_id = either.upload(image(), key=key)["file_id"]
    body = {"json": {"output_format": "png"}}
    problem(either.request("POST", f"/files/{file_id}/convert", key, **body), 402, "no_credits")
    unknown = either.request("POST", f"/files/{file_id}/convert", key, json={"output_format": "xyz"})
    problem(unknown, 400, "unsupported_conversion")
    problem(either.request("POST", "/files/file_x/convert", key, **body), 404, "not_found")
    problem(either.request("POST", "/files/upload", key, files={"file": b"\0words"}), 400, "invalid_file_type")
    empty = either.request("POST", "/files/upload", key, files={"file": b""})
    problem(empty, 400, "invalid_file_type", reason="empty_file")
    other = either.request("POST", "/files/upload", key, files={"other": b"x"})
    problem(other, 400, "invalid_parameter", param="other", reason="unknown_parameter")
    assert other.json()["error"]["details"]["available"] == ["file"]
    assert other.json()["error"]["message"] == "There is no field other; send the file in the field file."
    large = either.request("POST", "/files/upload", key, files={"file": bytes(10_485_761)})
    problem(large, 413, "file_too_large", reason="bytes")


def test_a_format_whose_plugin_is_gone(server: Running) -> None:
    file_id = server.upload(image())["file_id"]
    gone = models.File.update(input_format="gone").where(models.File.file_id == file_id)
    server.database.run_blocking(Transaction.execute, gone)
    response = server.request("POST", f"/files/{file_id}/convert", json={"output_format": "png"})
    problem(response, 400, "invalid_file_type", reason="unrecognized")


def test_extensions_tell_the_content(server: Running) -> None:
    assert server.upload(image("PNG"), "photo.jpg")["extension"] == "png"
    assert server.upload(image("TIFF"), "scan.TIF")["extension"] == "tif"
    assert server.upload(image(), "../../etc/passwd")["original_name"] == "passwd"


def _grown(server: Running, file_id: str, size: int, column: str = "original_size") -> None:
    """Sets the recorded size of an upload or its result, which counts towards the account's quota."""
    grown = models.File.update({column: size}).where(models.File.file_id == file_id)
    server.database.run_blocking(Transaction.execute, grown)


def test_stored_uploads_have_a_quota(either: Running) -> None:
    key, most, content = either.account(), DEFAULT_PLANS["free"].max_stored_bytes, image("JPEG")
    first = either.upload(content, key=key)["file_id"]
    _grown(either, first, most - len(content))
    last = either.upload(content, key=key)["file_id"]
    batch = either.request("POST", "/batch", key, json={"output_format": "png"}).json()["data"]["batch_id"]
    for path in ("/files/upload", f"/batch/{batch}/files"):
        response = either.request("POST", path, key, files={"file": ("a.jpg", content)})
        details = {"max_stored_bytes": most, "stored_bytes": most}
        problem(response, 413, "file_too_large", reason="storage", param="file", details=details)
    details = {"max_stored_bytes": most, "stored_bytes": most}
    response = either.request("POST", f"/files/{last}/convert", key, json={"output_format": "png"})
    problem(response, 413, "file_too_large", reason="storage", details=details)
    headers = {"Authorization": f"Bearer {either.account()}"}
    assert either.convert(content, "png", headers=headers).status_code == 200
    assert either.request("DELETE", f"/files/{first}", key).status_code == 200
    either.upload(content, path=f"/batch/{batch}/files", key=key)


def test_expired_files_take_no_space(either: Running) -> None:
    """Also before they are deleted."""
    key, content = either.account(), image("JPEG")
    file = either.upload(content, key=key)["file_id"]
    _grown(either, file, DEFAULT_PLANS["free"].max_stored_bytes)
    refused = either.request("POST", "/files/upload", key, files={"file": ("a.jpg", content)})
    problem(refused, 413, "file_too_large", reason="storage", param="file")
    expired = models.File.update(expires_at=1).where(models.File.file_id == file)
    either.database.run_blocking(Transaction.execute, expired)
    either.upload(content, key=key)


def test_jobs_are_not_accepted_without_space(either: Running) -> None:
    key, content = either.account(), image("JPEG")
    details = {
        "max_stored_bytes": DEFAULT_PLANS["free"].max_stored_bytes,
        "stored_bytes": DEFAULT_PLANS["free"].max_stored_bytes - 1,
    }
    _grown(either, either.upload(content, key=key)["file_id"], details["stored_bytes"])
    form: dict[str, Any] = {"files": {"file": ("a.jpg", content)}, "data": {"output_format": "png"}}
    response = either.request("POST", "/convert", key, headers={"Prefer": "respond-async"}, **form)
    problem(response, 413, "file_too_large", reason="storage", details=details)
    assert either.request("GET", "/jobs", key).json()["data"]["jobs"] == []
    assert not list((either.data_dir / "blobs").glob("job_*"))


def test_the_size_of_stored_files_is_not_summed(either: Running, caplog: pytest.LogCaptureFixture) -> None:
    """An upload, a conversion and a job must not take longer, the more files the account has."""
    key, content = either.account(credits=9), image("JPEG")
    either.upload(content, key=key)
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
    with caplog.at_level(logging.DEBUG, "peewee"):
        either.upload(content, key=key)
        either.convert(content, "png", headers=headers)
        accepted = either.convert(content, "png", headers={**headers, "Prefer": "respond-async"}).json()["data"]
        either.request("GET", f"/jobs/{accepted['job_id']}", key, headers={"Prefer": "wait=60"})
    # Other accounts of this server may be at their limit, whose files are summed.
    own = either.database.run_blocking(accounts.find, either.request("GET", "/account", key).json()["data"]["email"])
    assert own is not None
    found: list[Any] = [record.msg for record in caplog.records if record.name == "peewee"]
    statements = [sql for sql, values in found if own.id in str(values)]
    assert [sql for sql in statements if "SUM(" in sql and " file " in sql] == []
    assert [sql for sql in statements if "stored_bytes" in sql]


def test_results_count_towards_the_quota(either: Running) -> None:
    key, most, content = either.account(credits=9), DEFAULT_PLANS["free"].max_stored_bytes, image("JPEG")
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json"}
    first = either.convert(content, "bmp", headers=headers).json()["data"]
    assert _storage(either, key) == {"stored_bytes": first["processed_size"], "max_stored_bytes": most}
    _grown(either, first["file_id"], most - 1, "result_size")
    for extra in ({}, {"Accept": "*/*", "Idempotency-Key": "one"}):  # the result of the second is kept for repeats
        response = either.convert(content, "bmp", headers=headers | extra)
        details = {"max_stored_bytes": most, "stored_bytes": most - 1}
        problem(response, 413, "file_too_large", reason="storage", details=details)
    assert either.convert(content, "bmp", headers={**headers, "Accept": "*/*"}).status_code == 200
    assert either.request("DELETE", f"/files/{first['file_id']}", key).status_code == 200
    assert either.convert(content, "bmp", headers=headers | {"Idempotency-Key": "one"}).status_code == 200
    account = either.request("GET", "/account", key).json()["data"]
    assert (account["credits_remaining"], account["credits_used_total"]) == (6, 3)
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_a_repeat_of_a_stored_response_needs_no_space(server: Running) -> None:
    key, most = server.account(credits=9), DEFAULT_PLANS["free"].max_stored_bytes
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json", "Idempotency-Key": "one"}
    first = server.convert(image("JPEG"), "bmp", headers=headers).json()["data"]
    _grown(server, first["file_id"], most, "result_size")
    repeated = server.convert(image("JPEG"), "bmp", headers=headers)
    assert (repeated.status_code, repeated.headers["Idempotency-Replayed"]) == (200, "true")


def _storage(server: Running, key: str) -> Any:
    return server.request("GET", "/account", key).json()["data"]["storage"]


def listed(server: Running, key: str, **query: Any) -> Any:
    response = server.request("GET", "/files", key, params=query)
    assert response.status_code == 200, response.text
    return response.json()["data"]


def test_newest_first_page_by_page(either: Running) -> None:
    key = either.account()
    assert listed(either, key) == {"files": [], "next_cursor": None}
    ids = [either.upload(image(), key=key)["file_id"] for _ in range(5)]
    whole = listed(either, key)
    assert whole["next_cursor"] is None
    assert whole["files"][0] == either.request("GET", f"/files/{whole['files'][0]['file_id']}", key).json()["data"]
    assert [file["file_id"] for file in whole["files"]] == ids[::-1]
    pages, cursor = [], dict[str, str]()
    while True:
        page = listed(either, key, limit=2, **cursor)
        pages.append(page["files"])
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [len(page) for page in pages] == [2, 2, 1]
    assert [file for page in pages for file in page] == whole["files"]
    assert listed(either, key, limit=5)["next_cursor"] is None


def test_by_status(either: Running) -> None:
    key = either.account()
    pending, processed = (either.upload(image(), key=key)["file_id"] for _ in range(2))
    either.request("POST", f"/files/{processed}/convert", key, json={"output_format": "png"})
    pages = {status: listed(either, key, status=status)["files"] for status in ("pending", "processed")}
    found = {status: [file["file_id"] for file in files] for status, files in pages.items()}
    assert found == {"pending": [pending], "processed": [processed]}


def test_files_of_others_are_not_listed(either: Running) -> None:
    key = either.account()
    either.upload(image(), key=key)
    page = listed(either, key, limit=1)
    assert listed(either, either.account()) == {"files": [], "next_cursor": None}
    cursor = f"{'9' * 19}-{page['files'][0]['file_id']}"
    assert listed(either, either.account(), cursor=cursor)["files"] == []


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=101", "limit=x", "limit=", "status=done", "status=", "cursor=", "cursor=x", "cursor=1-%00"],
)
def test_wrong_queries(server: Running, query: str) -> None:
    problem(server.request("GET", f"/files?{query}"), 400, "invalid_parameter", param=query.partition("=")[0])


@pytest.fixture(scope="module")
def owned(either: Running) -> dict[str, str]:
    """A processed file, a batch, a job and a key of one account."""
    owner = either.account()
    batch = either.request("POST", "/batch", owner, **FORMAT).json()["data"]["batch_id"]
    file = either.upload(image(), key=owner)["file_id"]
    either.request("POST", f"/files/{file}/convert", owner, **FORMAT)
    key = either.request("GET", "/account/keys", owner).json()["data"]["keys"][0]["key_id"]
    path, headers = f"/files/{file}/convert", {"Prefer": "respond-async"}
    job = either.request("POST", path, owner, **FORMAT, headers=headers).json()["data"]["job_id"]
    url = {"url": "https://10.0.0.1.invalid/"}
    webhook = either.request("POST", "/webhooks", owner, json=url).json()["data"]["webhook_id"]
    delivery = either.request("POST", f"/webhooks/{webhook}/test", owner).json()["data"]["delivery_id"]
    ids = {"file": file, "batch": batch, "job": job, "key": key, "webhook": webhook, "delivery": delivery}
    ids["preset"] = either.request("PUT", "/presets/of-the-owner", owner, json={}).json()["data"]["name"]
    return {"owner": owner, **ids}


@pytest.mark.parametrize(("method", "path"), PATHS)
def test_a_foreign_id_is_not_found(either: Running, owned: dict[str, str], method: str, path: str) -> None:
    stranger = either.account()
    response = either.request(method, path.format(**owned), stranger, **BODIES.get(path, {}))
    problem(response, 404, "not_found")


def test_resources_of_the_owner_are_unchanged(either: Running, owned: dict[str, str]) -> None:
    assert either.request("GET", f"/files/{owned['file']}/download", owned["owner"]).status_code == 200
    assert either.request("GET", f"/batch/{owned['batch']}", owned["owner"]).json()["data"]["total"] == 0
    headers = {"Prefer": "wait=60"}
    job = either.request("GET", f"/jobs/{owned['job']}", owned["owner"], headers=headers).json()["data"]
    assert job["status"] == "completed"
    assert either.request("GET", f"/presets/{owned['preset']}", owned["owner"]).status_code == 200


def test_a_foreign_file_fails_alone_in_a_batch(either: Running, owned: dict[str, str]) -> None:
    stranger = either.account()
    batch = either.request("POST", "/batch", stranger, **FORMAT).json()["data"]["batch_id"]
    own = either.upload(image(), path=f"/batch/{batch}/files", key=stranger)["file_id"]
    body = {"output_format": "png", "file_ids": [owned["file"], own]}
    results = either.request("POST", f"/batch/{batch}/convert", stranger, json=body).json()["data"]["results"]
    assert [entry["status"] for entry in results] == ["failed", "success"]
    assert results[0]["error"]["code"] == "not_found"


def test_every_path_with_an_id_is_tried() -> None:
    patterns = [pattern for pattern, _, _ in api_routes(load_registry())]
    with_ids = {path.removeprefix(API) for path in patterns if path.startswith(API) and "([^/]+)" in path}
    assert with_ids == {re.sub(r"{\w+}", "([^/]+)", path) for _, path in PATHS}
