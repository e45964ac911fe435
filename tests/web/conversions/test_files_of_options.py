"""Options that are files: as files of a form, and as stored files by their ids, on every endpoint that converts."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest
from PIL import Image

from config.settings import Settings
from convertd_client import Client, InvalidParameter
from engine import OptionValues
from engine.registry import load_registry
from plugins._color import profiles
from storage.blobs.blob_store import open_blob_store
from tests.support.command_line import invoke
from tests.support.requests.batches import add, create
from tests.support.requests.checks import problem
from tests.support.samples.generated import saved
from tests.support.servers.in_process import Running, eventually
from web.api import errors
from web.services.accounts.accounts import Accounts
from web.services.conversions.additional_files import AdditionalFiles
from web.services.conversions.conversion_request import ConversionRequest
from web.services.files.files import Files
from web.services.files.work_files import WorkFiles

JSON = {"Accept": "application/json"}
PHOTO = saved(Image.new("RGB", (100, 50), "white"), "PNG")
MARK = saved(Image.new("RGB", (8, 8), "blue"), "PNG")
PROFILE = profiles.named("adobe-rgb").data
OPTIONS = {"watermark_opacity": "1", "watermark_size": "50", "watermark_position": "center"}


def is_marked(content: bytes) -> bool:
    """Whether the middle is blue and the corners are white."""
    image = Image.open(io.BytesIO(content)).convert("RGB")
    width, height = image.size
    middle, corner = image.getpixel((width // 2, height // 2)), image.getpixel((2, 2))
    return bool(np.abs(np.array([middle, corner]) - [(0, 0, 255), (255, 255, 255)]).max() < 12)


def profile_of(content: bytes) -> bytes | None:
    profile: bytes | None = Image.open(io.BytesIO(content)).info.get("icc_profile")
    return profile


def send(server: Running, key: str, path: str = "/convert", /, headers: Any = None, **fields: Any) -> Any:
    """Sends a form. Bytes are files."""
    given = {"file": PHOTO, "output_format": "png", **fields}
    parts = {name: (f"{name}.bin", one) if isinstance(one, bytes) else (None, one) for name, one in given.items()}
    return server.request("POST", path, key, files=parts, headers=headers or {})


def download(server: Running, key: str, data: Any) -> bytes:
    return server.request("GET", data["download_url"].removeprefix("/api/v1"), key).content


def test_files_of_a_form(server: Running) -> None:
    key = server.account()

    response = send(server, key, **OPTIONS, watermark=MARK, output_profile=PROFILE)

    assert response.status_code == 200
    assert profile_of(response.content) == PROFILE
    plain = send(server, key, watermark=MARK, output_profile="p3", **OPTIONS)
    assert is_marked(send(server, key, watermark=MARK, **OPTIONS).content)
    assert profile_of(plain.content) == profiles.named("p3").data
    stored = send(server, key, "/convert/json", watermark=MARK, **OPTIONS).json()["data"]
    assert stored["original_size"] == len(PHOTO)
    assert is_marked(download(server, key, stored))
    assert eventually(lambda: server.work_files() == [])


def test_ids_of_stored_files(server: Running) -> None:
    key = server.account()
    mark = server.upload(MARK, "mark.png", key=key)["file_id"]
    profile = server.upload(PROFILE, "a.icc", key=key)["file_id"]
    options = {**OPTIONS, "watermark": mark}

    assert is_marked(send(server, key, **options).content)
    assert profile_of(send(server, key, output_profile=profile).content) == PROFILE
    photo = server.upload(PHOTO, "photo.png", key=key)["file_id"]
    body = {"output_format": "webp", "watermark": mark, "watermark_opacity": 1, "watermark_position": "center"}
    made = server.request("POST", f"/files/{photo}/convert", key, json=body).json()["data"]
    assert is_marked(download(server, key, made))
    batch = create(server, key)
    ids = add(server, batch, key, PHOTO, saved(Image.new("RGB", (60, 60), "white"), "BMP"))
    body = {"file_ids": ids, **body, "output_profile": "p3"}
    entries = server.request("POST", f"/batch/{batch}/convert", key, json=body).json()["data"]["results"]
    assert [profile_of(download(server, key, one)) for one in entries] == [profiles.named("p3").data] * 2
    assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 45
    assert eventually(lambda: server.work_files() == [])


@pytest.mark.parametrize("text", ["© 2026", "नमस्ते", "日本語"])
def test_fonts_are_found_in_the_sandbox(server: Running, text: str) -> None:
    response = send(server, server.account(), watermark_text=text, output_profile="fogra39", output_format="jpeg")

    image = Image.open(io.BytesIO(response.content))
    assert (response.status_code, image.mode) == (200, "CMYK")
    assert np.asarray(image)[35:, 60:].max() > 60  # the outline


def test_a_result_is_a_file_as_well(server: Running) -> None:
    key = server.account()
    form: dict[str, Any] = {"files": {"file": ("a.png", MARK)}, "data": {"output_format": "webp", "lossless": "true"}}
    made = server.request("POST", "/convert/json", key, **form).json()["data"]

    assert is_marked(send(server, key, watermark=made["file_id"], **OPTIONS).content)


def test_jobs_have_their_files(server: Running) -> None:
    key = server.account()
    mark = server.upload(MARK, "mark.png", key=key)["file_id"]
    for watermark in (MARK, mark):
        job = send(server, key, headers={"Prefer": "respond-async"}, watermark=watermark, **OPTIONS).json()["data"]
        ended = server.request("GET", f"/jobs/{job['job_id']}", key, headers={"Prefer": "wait=30"}).json()["data"]
        assert ended["status"] == "completed"
        assert is_marked(download(server, key, ended["result"]))


def test_a_dry_run_looks_at_the_files(server: Running) -> None:
    key = server.account(0)

    found = send(server, key, "/convert/inspect", watermark=MARK, output_profile="p3").json()["data"]
    assert (found["width"], found["warnings"], found["options"]["output_profile"]) == (100, [], "p3")
    assert "watermark" in found["path"]
    damaged = send(server, key, "/convert/inspect", output_profile=PROFILE[:200])
    problem(damaged, 500, "processing_failed", reason="corrupt_input", param="output_profile")


def test_repeated_requests_with_files(server: Running) -> None:
    """The same file of a form, or the same id, is the same request, also when the file is deleted."""
    key = server.account()
    mark = server.upload(MARK, "mark.png", key=key)["file_id"]
    for index, watermark in enumerate((MARK, mark)):
        headers = {**JSON, "Idempotency-Key": f"key-{index}"}
        first = send(server, key, headers=headers, watermark=watermark)
        if watermark == mark:
            server.request("DELETE", f"/files/{mark}", key)
        again = send(server, key, headers=headers, watermark=watermark)
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.json()["data"] == first.json()["data"]
        other = send(server, key, headers=headers, watermark=PHOTO)
        problem(other, 422, "idempotency_key_reused")


async def test_a_file_that_is_sent_goes_before_an_id(server: Running, tmp_path: Path) -> None:
    """As a field of a request goes before options that are kept for it."""
    registry = load_registry()
    files = Files(server.database, open_blob_store(None, tmp_path), registry)
    additional = AdditionalFiles(files, WorkFiles(tmp_path), registry)
    account = await Accounts(server.database, Settings()).authenticate(f"Bearer {server.account()}")
    options: OptionValues = {"watermark": "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7", "width": 9, "output_profile": "p3"}
    request = ConversionRequest(account=account, options=options)

    assert await additional.find(replace(request, file_names=("watermark",))) == {}
    with pytest.raises(errors.InvalidParameter):
        await additional.find(request)


@pytest.mark.parametrize("name", ["watermark", "output_profile"])
def test_ids_of_no_file_are_refused(server: Running, name: str) -> None:
    key, other = server.account(), server.upload(MARK, "mark.png", key=server.account())["file_id"]
    photo = server.upload(PHOTO, "photo.png", key=key)["file_id"]
    for value in ("file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7", other, "mark.png", "/etc/passwd"):
        for headers in ({}, {"Prefer": "respond-async"}):
            refused = [
                send(server, key, headers=headers, **{name: value}),
                server.request(
                    "POST", f"/files/{photo}/convert", key, json={"output_format": "png", name: value}, headers=headers
                ),
            ]
            for response in refused:
                problem(response, 400, "invalid_parameter", param=name, reason="no_file")
    assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 50


def test_files_of_the_wrong_kind_are_refused(server: Running) -> None:
    key = server.account()
    for content in (PROFILE, b"no picture"):
        problem(send(server, key, watermark=content), 400, "invalid_file_type", param="watermark")
    problem(send(server, key, output_profile=MARK), 400, "invalid_file_type", param="output_profile")
    mark = ("watermark", ("a.png", MARK))
    twice = [("file", ("a.png", PHOTO)), mark, mark, ("output_format", (None, b"png"))]
    for parts in (twice, [*twice[:2], ("watermark", (None, b"file_1")), twice[3]]):
        response = server.request("POST", "/convert", key, files=parts)
        problem(response, 400, "invalid_parameter", param="watermark", reason="duplicate")


def test_forms_without_files_have_ids(server: Running) -> None:
    """Those with a URL, which are JSON or URL-encoded, cannot have a file."""
    body = {"url": "http://192.0.2.1/a.png", "output_format": "png", "watermark": "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"}

    response = server.request("POST", "/convert", server.account(), json=body)

    problem(response, 400, "invalid_parameter", param="url")  # not that of the watermark


def test_the_client_sends_files(server: Running, tmp_path: Path) -> None:
    (tmp_path / "mark.png").write_bytes(MARK)
    with Client(server.url, api_key=server.account()) as client:
        options: dict[str, Any] = {"watermark_opacity": 1, "watermark_size": 50, "watermark_position": "center"}
        for mark in (tmp_path / "mark.png", MARK, io.BytesIO(MARK)):
            assert is_marked(client.convert(PHOTO, "png", watermark=mark, **options).content)
        stored = client.upload(tmp_path / "mark.png").file_id
        assert is_marked(client.convert(PHOTO, "png", watermark=stored, **options).content)
        assert "watermark" in client.inspect(PHOTO, "png", watermark=MARK).path
        job = client.wait(client.submit(PHOTO, "png", watermark=MARK, **options).job_id)
        assert job.status == "completed"
        with pytest.raises(InvalidParameter):
            client.convert(PHOTO, "png", watermark="mark.png")


@pytest.mark.parametrize("remote", [False, True])
def test_the_command_takes_paths(server: Running, tmp_path: Path, remote: bool) -> None:
    (tmp_path / "mark.png").write_bytes(MARK)
    (tmp_path / "photo.png").write_bytes(PHOTO)
    (tmp_path / "a.icc").write_bytes(PROFILE)
    flags = [part for name, value in OPTIONS.items() for part in (f"--{name.replace('_', '-')}", value)]
    place = ("--remote", server.url) if remote else ()
    key = server.account()

    done = invoke(
        tmp_path, "convert", "photo.png", "out.webp", "--watermark", "mark.png", *flags, *place, CONVERTD_API_KEY=key
    )
    assert (done.exit_code, is_marked((tmp_path / "out.webp").read_bytes())) == (0, True)
    done = invoke(tmp_path, "convert", "photo.png", "p3.png", "--output-profile", "p3", *place, CONVERTD_API_KEY=key)
    assert profile_of((tmp_path / "p3.png").read_bytes()) == profiles.named("p3").data
    done = invoke(tmp_path, "convert", "photo.png", "a.png", "--output-profile", "a.icc", *place, CONVERTD_API_KEY=key)
    assert profile_of((tmp_path / "a.png").read_bytes()) == PROFILE
    command = ("convert", "--explain", "--json", "photo.png", "x.png", "--watermark", "mark.png", *place)
    done = invoke(tmp_path, *command, CONVERTD_API_KEY=key)
    assert "watermark" in json.dumps(json.loads(done.stdout))
    missing = invoke(tmp_path, "convert", "photo.png", "b.png", "--watermark", "none.png", *place, CONVERTD_API_KEY=key)
    assert (missing.exit_code, "none.png" in missing.stderr) == (1, True)


def test_a_result_has_the_file_of_its_own_option(server: Running) -> None:
    key = server.account()
    red, blue = (saved(Image.new("RGB", (8, 8), color), "PNG") for color in ("red", "blue"))
    marked = {"output_format": "png"}
    ids = [server.upload(mark, "mark.png", key=key)["file_id"] for mark in (red, blue)]
    singles = [send(server, key).content, *(send(server, key, watermark=mark).content for mark in ids)]
    two = [marked | {"watermark": ids[1]}, {"output_format": "auto", "formats": "png"}]
    outputs = json.dumps([marked | {"watermark": ids[0]}, *two])
    batch = create(server, key)
    of_batch = {"file_ids": add(server, batch, key, PHOTO), "outputs": json.loads(outputs)}

    plain = send(server, key, outputs=outputs)
    shared = send(server, key, watermark=red, outputs=json.dumps(two))
    waiting = {"Prefer": "respond-async, wait=60"}
    job = send(server, key, outputs=outputs, headers=waiting).json()["data"]["result"]
    (entry,) = server.request("POST", f"/batch/{batch}/convert", key, json=of_batch).json()["data"]["results"]
    planned = send(server, key, "/convert/inspect", outputs=outputs).json()["data"]["outputs"]

    assert _contents(plain.content) == [*singles[1:], singles[0]]
    assert _contents(shared.content) == [singles[2], singles[1]]
    for one in (job, entry):
        stored = server.request("GET", one["download_url"].removeprefix("/api/v1"), key)
        assert _contents(stored.content) == [*singles[1:], singles[0]]
    assert ["watermark" in one["path"] for one in planned] == [True, True, False]
    wrong = send(server, key, outputs=json.dumps([{"output_format": "png", "watermark": "mark.png"}]))
    problem(wrong, 400, "invalid_parameter", param="outputs[0].watermark", reason="no_file")


def _contents(archive: bytes) -> list[bytes]:
    with ZipFile(io.BytesIO(archive)) as files:
        return [files.read(name) for name in files.namelist()]
