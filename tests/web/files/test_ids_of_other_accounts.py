"""No endpoint that takes an id gives access to resources of another account."""

import re
from typing import Any

import pytest

from engine.registry import load_registry
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.servers.in_process import Running
from web.api.values import API
from web.routes import api_routes

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
