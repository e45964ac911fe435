"""`outputs`, `filename`, presets and `auto`: what a conversion results in, by all ways to convert a file."""

import io
import json
from typing import Any
from zipfile import ZipFile

import httpx
import pytest
from PIL import Image

from storage.database import Transaction
from storage.tables import ledger_audit
from storage.tables.models import File
from tests.support.requests import http
from tests.support.requests.batches import add, create
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.generated import saved
from tests.support.servers.in_process import Running

PHOTO = image(size=(64, 48))
NOISE = saved(Image.effect_noise((300, 300), 90), "PNG")
TWO = [{"output_format": "webp", "width": 32, "name": "small"}, {"output_format": "png"}]
JSON = {"Accept": "application/json"}


def _files(content: bytes) -> dict[str, tuple[str, tuple[int, int]]]:
    """The images of a ZIP by name: format and size."""
    with ZipFile(io.BytesIO(content)) as archive:
        opened = {name: Image.open(archive.open(name)) for name in archive.namelist()}
        return {name: (str(image.format), image.size) for name, image in opened.items()}


def _convert(server: Running, key: str = "", path: str = "/convert", content: bytes = PHOTO, **form: Any) -> Any:
    headers = form.pop("headers", {})
    files = {"file": ("photo.jpg", content)}
    return server.request("POST", path, key, files=files, data=form, headers=headers)


def test_several_results_are_one_zip_and_cost_one_credit_each(either: Running) -> None:
    key = either.account(credits=5)
    response = _convert(either, key, outputs=json.dumps(TWO))
    assert response.headers["Content-Type"] == "application/zip"
    assert 'filename="photo.zip"' in response.headers["Content-Disposition"]
    assert _files(response.content) == {"small.webp": ("WEBP", (32, 24)), "photo-02.png": ("PNG", (64, 48))}
    assert response.headers["X-Credits-Remaining"] == "3"
    usage = either.request("GET", "/account/usage", key).json()["data"]
    assert (usage["total_conversions"], usage["credits_used"]) == (2, 2)
    counted = {(pair["output_format"], pair["count"], pair["credits"]) for pair in usage["by_conversion"]}
    assert counted == {("png", 1, 1), ("webp", 1, 1)}
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_json_lists_the_results_in_order(server: Running) -> None:
    data = _convert(server, path="/convert/json", outputs=json.dumps(TWO), quality="70").json()["data"]
    assert (data["container"], data["file_count"], data["output_format"]) == ("zip", 2, "zip")
    assert [one["output_format"] for one in data["outputs"]] == ["webp", "png"]
    assert [(one["width"], one["height"]) for one in data["outputs"]] == [(32, 24), (64, 48)]
    assert [one["filename"] for one in data["outputs"]] == ["small.webp", "photo-02.png"]
    assert [[told["code"] for told in one["warnings"]] for one in data["outputs"]] == [[], ["quality_ignored"]]
    archive = server.request("GET", data["download_url"].removeprefix("/api/v1")).content
    for one in data["outputs"]:
        download = server.request("GET", one["download_url"].removeprefix("/api/v1"))
        assert download.headers["Content-Type"] == one["media_type"]
        assert one["filename"] in download.headers["Content-Disposition"]
        assert download.content == archive[one["offset"] :][: one["processed_size"]]
        part = {"Range": "bytes=2-5"}
        ranged = server.request("GET", one["download_url"].removeprefix("/api/v1"), headers=part)
        assert (ranged.status_code, ranged.content) == (206, download.content[2:6])
    missing = server.request("GET", f"/files/{data['file_id']}/download?output=3")
    problem(missing, 404, "not_found", param="output")


def test_a_result_outside_of_the_archive_is_not_sent(server: Running) -> None:
    data = _convert(server, path="/convert/json", outputs=json.dumps(TWO)).json()["data"]

    def forge(transaction: Transaction) -> None:
        (text,) = transaction.rows(File.select(File.outcome).where(File.file_id == data["file_id"]))[0]
        outcome = json.loads(text)
        outcome["outputs"][0]["offset"] = outcome["processed_size"]
        query = File.update(outcome=json.dumps(outcome)).where(File.file_id == data["file_id"])
        transaction.execute(query)

    server.database.run_blocking(forge)
    problem(server.request("GET", f"/files/{data['file_id']}/download?output=1"), 404, "not_found", param="output")


def test_a_name_is_no_reason_to_replace_the_original(server: Running) -> None:
    small = _convert(server, output_format="png", effort="9").content
    kept = _convert(server, content=small, output_format="png", effort="1", filename="other")
    assert kept.headers["X-Warnings"] == "kept_original"
    assert kept.content == small


def test_a_link_leads_to_one_result(server: Running) -> None:
    data = _convert(server, path="/convert/json", outputs=json.dumps(TWO)).json()["data"]
    link = server.request("POST", f"/files/{data['file_id']}/links", json={}).json()["data"]["url"]
    shown = http.get(server.api + link.partition("/api/v1")[2] + "?output=2&disposition=inline")
    assert (shown.status_code, shown.headers["Content-Type"]) == (200, "image/png")


def test_results_are_those_of_single_conversions(server: Running) -> None:
    outputs = [{"output_format": name, "width": 40} for name in ("png", "bmp", "gif", "jpeg")]
    response = _convert(server, outputs=json.dumps(outputs), rotate="90")
    with ZipFile(io.BytesIO(response.content)) as archive:
        for name, one in zip(archive.namelist(), outputs, strict=True):
            single = _convert(server, output_format=str(one["output_format"]), width="40", rotate="90")
            assert archive.read(name) == single.content


def test_one_failure_fails_all_uncharged(server: Running) -> None:
    key = server.account(credits=3)
    failing = json.dumps([{"output_format": "png"}, {"output_format": "webp", "max_bytes": 1000}])
    refused = _convert(server, key, content=NOISE, outputs=failing)
    problem(refused, 500, "processing_failed", reason="target_unreachable", param="outputs[1].max_bytes")
    assert server.request("GET", "/account", key).json()["data"]["credits_remaining"] == 3


@pytest.mark.parametrize(
    ("outputs", "code", "expected"),
    [
        ("png", "invalid_parameter", {"param": "outputs", "reason": "malformed"}),
        ("[]", "invalid_parameter", {"param": "outputs", "reason": "out_of_range"}),
        (json.dumps(TWO * 11), "invalid_parameter", {"param": "outputs", "reason": "out_of_range"}),
        ('[{"width": 10}]', "invalid_parameter", {"param": "outputs[0].output_format", "reason": "missing"}),
        ('[{"output_format": "png", "width": 0}]', "invalid_parameter", {"param": "outputs[0].width"}),
        (
            '[{"output_format": "png"}, {"output_format": "png", "wide": 1}]',
            "invalid_parameter",
            {"param": "outputs[1].wide", "reason": "unknown_parameter"},
        ),
        ('[{"output_format": "png", "name": "a/b"}]', "invalid_parameter", {"param": "outputs[0].name"}),
        ('[{"output_format": "docx"}]', "unsupported_conversion", {"param": "outputs[0]"}),
    ],
)
def test_refused_outputs(server: Running, outputs: str, code: str, expected: dict[str, str]) -> None:
    problem(_convert(server, outputs=outputs), 400, code, **expected)


def test_too_few_credits_for_all_results(server: Running) -> None:
    key = server.account(credits=1)
    refused = _convert(server, key, outputs=json.dumps(TWO))
    problem(refused, 402, "no_credits")
    assert refused.json()["error"]["details"] == {"credits_remaining": 1, "credits_required": 2}


def test_a_dry_run_lists_the_results(server: Running) -> None:
    unreachable: dict[str, Any] = {"output_format": "jpeg", "max_bytes": 1000}
    several = json.dumps([*TWO, unreachable])
    data = _convert(server, path="/convert/inspect", content=NOISE, outputs=several).json()["data"]
    assert (data["credits"], data["container"], data["file_count"]) == (3, "zip", 3)
    assert [(one["output_format"], one["width"]) for one in data["outputs"][:2]] == [("webp", 32), ("png", 300)]
    single = _convert(server, path="/convert/inspect", content=NOISE, **unreachable).json()["data"]
    assert data["outputs"][2] == {name: single[name] for name in data["outputs"][2]}  # nothing is encoded


def test_outputs_of_a_stored_file_and_as_a_job(server: Running) -> None:
    key = server.account(credits=4)
    file_id = server.upload(PHOTO, key=key)["file_id"]
    body = {"outputs": TWO}
    data = server.request("POST", f"/files/{file_id}/convert", key, json=body).json()["data"]
    assert (data["file_id"], len(data["outputs"])) == (file_id, 2)
    described = server.request("GET", f"/files/{file_id}", key).json()["data"]
    assert described["outputs"] == data["outputs"]
    again = {"Prefer": "respond-async, wait=60"}
    job = server.request("POST", f"/files/{file_id}/convert", key, json=body, headers=again)
    assert job.status_code == 200
    assert job.json()["data"]["status"] == "completed"
    assert len(job.json()["data"]["result"]["outputs"]) == 2
    assert job.headers["X-Credits-Remaining"] == "0"
    assert server.database.run_blocking(ledger_audit.check) == ()


@pytest.mark.parametrize("prefer", [{}, {"Prefer": "respond-async, wait=60"}])
def test_outputs_of_a_batch(server: Running, prefer: dict[str, str]) -> None:
    key = server.account(credits=5)
    batch = create(server, key)
    ids = add(server, batch, key, PHOTO, image("PNG"))
    body = {"file_ids": ids, "outputs": TWO}
    response = server.request("POST", f"/batch/{batch}/convert", key, json=body, headers=prefer)
    data = response.json()["data"]
    results = (data.get("result") or data)["results"]
    assert [[one["output_format"] for one in entry["outputs"]] for entry in results] == [["webp", "png"]] * 2
    assert response.headers["X-Credits-Remaining"] == "1"
    assert server.database.run_blocking(ledger_audit.check) == ()


def test_a_repeated_request_gets_the_same_results(server: Running) -> None:
    key = server.account(credits=2)
    once = {"Idempotency-Key": "outputs"}
    first = _convert(server, key, outputs=json.dumps(TWO), headers=once)
    again = _convert(server, key, outputs=json.dumps(TWO), headers=once)
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.content == first.content
    assert again.headers["X-Credits-Remaining"] == "0"
    other = _convert(server, key, outputs=json.dumps(TWO[:1]), headers=once)
    problem(other, 422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("template", "name"),
    [
        ("{name}-{width}x{height}.{ext}", "photo-20x15.webp"),
        ("cover", "cover.webp"),
        ("{format}.WEBP", "webp.webp"),
        ("{name}.exe", "photo.exe.webp"),
        ("%2E.%2f{name}. .{ext}", "_2E._2fphoto.webp"),
    ],
)
def test_the_name_of_a_result(server: Running, template: str, name: str) -> None:
    response = _convert(server, output_format="webp", width="20", filename=template)
    assert f'filename="{name}"' in response.headers["Content-Disposition"]
    assert "X-Warnings" not in response.headers


@pytest.mark.parametrize("template", ["{size}.webp", "{name", "a/b", "a\nb", ""])
def test_refused_templates(server: Running, template: str) -> None:
    problem(_convert(server, output_format="webp", filename=template), 400, "invalid_parameter", param="filename")


def test_names_of_stored_results_batches_jobs_and_tools(server: Running) -> None:
    template: dict[str, Any] = {"output_format": "png", "width": 16, "filename": "{name}-{width}.{ext}"}
    file_id = server.upload(PHOTO)["file_id"]
    stored = server.request("POST", f"/files/{file_id}/convert", json=template).json()["data"]
    assert stored["filename"] == "photo-16.png"
    batch = create(server)
    ids = add(server, batch, "", PHOTO, PHOTO)
    converted = server.request("POST", f"/batch/{batch}/convert", json={"file_ids": ids, **template}).json()["data"]
    assert [entry["filename"] for entry in converted["results"]] == ["photo-16.png"] * 2
    waiting = {"Prefer": "respond-async, wait=60"}
    job = _convert(server, headers=waiting, **template).json()["data"]
    assert job["result"]["filename"] == "photo-16.png"
    pages = _convert(server, content=_pages(), output_format="png", pages="all", filename="scan of {name}")
    assert 'filename="scan of photo.zip"' in pages.headers["Content-Disposition"]
    assert [*_files(pages.content)] == ["scan of photo-01.png", "scan of photo-02.png"]
    pdf = {"file": ("a.pdf", _convert(server, output_format="pdf").content)}
    turned = server.request("POST", "/pdf/rotate", files=pdf, data={"angle": "90", "filename": "turned {name}"})
    assert 'filename="turned a.pdf"' in turned.headers["Content-Disposition"]


def _pages() -> bytes:
    file = io.BytesIO()
    first = Image.new("L", (20, 20))
    first.save(file, "TIFF", save_all=True, append_images=[Image.new("L", (20, 20), 9)])
    return file.getvalue()


def test_a_preset_is_kept_replaced_and_deleted(either: Running) -> None:
    key = either.account()
    fields = {"output_format": "webp", "width": 20, "fit": "cover", "height": 20}
    made = either.request("PUT", "/presets/thumbs", key, json=fields).json()["data"]
    assert (made["name"], made["fields"]) == ("thumbs", fields)
    assert either.request("GET", "/presets/thumbs", key).json()["data"] == made
    other = either.account()
    problem(either.request("GET", "/presets/thumbs", other), 404, "not_found")
    changed = either.request("PUT", "/presets/thumbs", key, json={"outputs": TWO}).json()["data"]
    assert changed["fields"] == {"outputs": TWO}
    assert [one["name"] for one in either.request("GET", "/presets", key).json()["data"]["presets"]] == ["thumbs"]
    assert either.request("DELETE", "/presets/thumbs", key).json()["data"] == {"name": "thumbs", "deleted": True}
    problem(either.request("DELETE", "/presets/thumbs", key), 404, "not_found")
    problem(_convert(either, key, preset="thumbs"), 404, "not_found", param="preset")


@pytest.mark.parametrize(
    ("name", "fields", "expected"),
    [
        ("a b", {}, {"param": "name"}),
        ("a", {"width": 0}, {"param": "width"}),
        ("a", {"wide": 1}, {"param": "wide", "reason": "unknown_parameter"}),
        ("a", {"preset": "b"}, {"param": "preset", "reason": "unknown_parameter"}),
        ("a", {"password": "secret"}, {"param": "password", "reason": "unknown_parameter"}),
        ("a", {"outputs": [{"output_format": "png", "width": 0}]}, {"param": "outputs[0].width"}),
        ("a", {"outputs": [{"output_format": "png", "password": "p"}]}, {"param": "outputs[0].password"}),
    ],
)
def test_refused_presets(server: Running, name: str, fields: dict[str, Any], expected: dict[str, str]) -> None:
    problem(server.request("PUT", f"/presets/{name}", json=fields), 400, "invalid_parameter", **expected)


def test_a_request_has_the_fields_of_its_preset(server: Running) -> None:
    key = server.account()
    kept = {"output_format": "webp", "width": 20, "fit": "cover", "height": 20, "filename": "thumb-{width}"}
    server.request("PUT", "/presets/thumbs", key, json=kept)
    response = _convert(server, key, preset="thumbs")
    assert 'filename="thumb-20.webp"' in response.headers["Content-Disposition"]
    assert Image.open(io.BytesIO(response.content)).size == (20, 20)
    explicit = _convert(server, key, preset="thumbs", output_format="png", fit="inside")
    assert 'filename="thumb-20.png"' in explicit.headers["Content-Disposition"]
    assert Image.open(io.BytesIO(explicit.content)).size == (20, 15)
    planned = _convert(server, key, "/convert/inspect", preset="thumbs").json()["data"]
    assert (planned["output_format"], planned["width"]) == ("webp", 20)
    file_id = server.upload(PHOTO, key=key)["file_id"]
    stored = server.request("POST", f"/files/{file_id}/convert", key, json={"preset": "thumbs"}).json()["data"]
    assert stored["filename"] == "thumb-20.webp"
    batch = create(server, key)
    body = {"file_ids": add(server, batch, key, PHOTO), "preset": "thumbs", "height": None}
    (entry,) = server.request("POST", f"/batch/{batch}/convert", key, json=body).json()["data"]["results"]
    assert (entry["filename"], entry["height"]) == ("thumb-20.webp", 20)


def test_a_preset_of_several_results(server: Running) -> None:
    key = server.account()
    server.request("PUT", "/presets/sizes", key, json={"outputs": TWO, "filename": "{name}-{width}"})
    assert [*_files(_convert(server, key, preset="sizes").content)] == ["small-32.webp", "photo-64.png"]
    single = _convert(server, key, preset="sizes", output_format="gif")
    assert single.headers["Content-Type"] == "image/gif"
    other = _convert(server, key, preset="sizes", outputs=json.dumps(TWO[1:]), output_format="gif", filename="{name}")
    assert [*_files(other.content)] == ["photo.png"]
    waiting = {"Prefer": "respond-async, wait=60"}
    job = _convert(server, key, preset="sizes", headers=waiting).json()["data"]
    assert [one["filename"] for one in job["result"]["outputs"]] == ["small-32.webp", "photo-64.png"]


def test_a_request_needs_an_output_format(server: Running) -> None:
    problem(_convert(server), 400, "invalid_parameter", param="output_format", reason="missing")


def _auto(server: Running, content: bytes = PHOTO, accept: str = "*/*", **form: str) -> httpx.Response:
    return _convert(server, content=content, output_format="auto", headers={"Accept": accept}, **form)  # type: ignore[no-any-return]


def test_auto_is_the_smallest_of_the_formats(server: Running) -> None:
    response = _auto(server, formats="bmp, png,webp")
    sizes = {name: len(_convert(server, output_format=name).content) for name in ("bmp", "png", "webp")}
    assert len(response.content) == min(sizes.values())
    assert response.headers["Content-Type"] == f"image/{min(sizes, key=lambda name: sizes[name])}"
    data = _convert(server, path="/convert/json", output_format="auto", formats="png,bmp").json()["data"]
    assert (data["output_format"], data["filename"]) == ("png", "photo.png")
    usage = server.request("GET", "/account/usage").json()["data"]["by_conversion"]
    assert "auto" not in {pair["output_format"] for pair in usage}


def test_auto_keeps_transparency_and_animation(server: Running) -> None:
    clear = io.BytesIO()
    Image.linear_gradient("L").convert("RGBA").save(clear, "PNG")
    with Image.open(clear) as image:
        image.putalpha(Image.linear_gradient("L").rotate(90))
        clear = io.BytesIO()
        image.save(clear, "PNG")
    assert _auto(server, clear.getvalue(), formats="jpeg,png").headers["Content-Type"] == "image/png"
    told = _auto(server, clear.getvalue(), formats="jpeg,bmp")
    assert told.headers["X-Warnings"] == "alpha_flattened" or told.headers["Content-Type"] == "image/bmp"
    moving = io.BytesIO()
    Image.new("P", (32, 32), 1).save(moving, "GIF", save_all=True, append_images=[Image.new("P", (32, 32), 2)])
    assert _auto(server, moving.getvalue(), formats="png,jpeg,webp").headers["Content-Type"] == "image/webp"


@pytest.mark.parametrize(
    ("accept", "formats"),
    [
        ("image/png", {"png"}),
        ("image/webp;q=0, image/*", {"avif", "jpeg", "png"}),
        ("text/html,image/webp,*/*;q=0.8", {"webp"}),
        ("image/bmp,image/*;q=0.5", {"avif", "webp", "jpeg", "png"}),
        ("*/*", {"avif", "webp", "jpeg", "png"}),
        ("image/x-unknown", {"avif", "webp", "jpeg", "png"}),
    ],
)
def test_auto_follows_the_header_accept(server: Running, accept: str, formats: set[str]) -> None:
    assert _auto(server, accept=accept).headers["Content-Type"].removeprefix("image/") in formats


def test_auto_in_other_requests(server: Running) -> None:
    file_id = server.upload(PHOTO)["file_id"]
    body = {"output_format": "auto", "formats": "png,bmp"}
    assert server.request("POST", f"/files/{file_id}/convert", json=body).json()["data"]["output_format"] == "png"
    batch = create(server, target="auto")
    batched = {"file_ids": add(server, batch, "", PHOTO), **body}
    (entry,) = server.request("POST", f"/batch/{batch}/convert", json=batched).json()["data"]["results"]
    assert entry["output_format"] == "png"
    several = json.dumps([{"output_format": "auto", "formats": "png,bmp"}, {"output_format": "gif"}])
    assert [*_files(_convert(server, outputs=several).content)] == ["photo-01.png", "photo-02.gif"]
    waiting = {"Prefer": "respond-async, wait=60"}
    job = _convert(server, headers=waiting, output_format="auto", formats="png,bmp").json()["data"]
    assert job["result"]["output_format"] == "png"
    planned = _convert(server, path="/convert/inspect", output_format="auto").json()["data"]
    assert (planned["output_format"], planned["width"]) == ("auto", 64)
    problem(_auto(server, formats="docx"), 400, "unsupported_conversion")


def test_all_results_have_the_file_of_an_option(server: Running) -> None:
    mark, key = {"watermark": ("mark.png", image("PNG", (8, 8)))}, server.account()
    two = json.dumps([{"output_format": "png"}, {"output_format": "bmp"}])
    sent = {"file": ("photo.jpg", PHOTO), **mark}
    several = server.request("POST", "/convert", key, files=sent, data={"outputs": two})
    single = server.request("POST", "/convert", key, files=sent, data={"output_format": "png"})
    with ZipFile(io.BytesIO(several.content)) as archive:
        assert archive.read("photo-01.png") == single.content
    stored = {"watermark": server.upload(image("PNG", (8, 8)), "mark.png", key=key)["file_id"], "outputs": two}
    named = _convert(server, key, **stored)
    with ZipFile(io.BytesIO(named.content)) as archive:
        assert archive.read("photo-01.png") == single.content
    assert _convert(server, key, "/convert/inspect", **stored).json()["data"]["credits"] == 2
    plain = _convert(server, key, output_format="png")
    assert plain.content != single.content
