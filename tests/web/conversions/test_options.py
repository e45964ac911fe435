"""Options of conversions, over all endpoints that take them."""

import io
import zipfile
from typing import Any

import pytest
from PIL import Image

from tests.support.requests.checks import problem
from tests.support.results.conversions import opened
from tests.support.samples.forms import image
from tests.support.samples.generated import saved
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running

JSON = {"Accept": "application/json"}


def test_pages_of_a_document_are_sent_as_a_zip(server: Running) -> None:
    response = server.convert(
        document("page", 3), "png", name="my report.pdf", pages="all", headers={"Idempotency-Key": "zip"}
    )
    assert response.headers["Content-Type"] == "application/zip"
    assert 'filename="my report.zip"' in response.headers["Content-Disposition"]
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.namelist() == [f"my report-{number:02}.png" for number in (1, 2, 3)]
        assert all(opened(archive.read(name)).format == "PNG" for name in archive.namelist())
    response = server.convert(document("page", 2), "png", name="%2f.pdf", pages="all", filename="-{name}")
    with zipfile.ZipFile(io.BytesIO(response.content)) as archive:
        assert archive.namelist() == ["_-_2f-01.png", "_-_2f-02.png"]


def test_stored_results_describe_their_container(server: Running) -> None:
    before = server.request("GET", "/account").json()["data"]["credits_remaining"]
    answer = server.convert(document("page", 3), "png", name="report.pdf", pages="2-3", headers=JSON).json()
    data = answer["data"]
    assert (data["container"], data["file_count"], data["output_format"]) == ("zip", 2, "png")
    assert answer["meta"]["credits_remaining"] == before - 1
    downloaded = server.request("GET", f"/files/{data['file_id']}/download")
    assert downloaded.headers["Content-Type"] == "application/zip"
    assert 'filename="report.zip"' in downloaded.headers["Content-Disposition"]
    status = server.request("GET", f"/files/{data['file_id']}").json()["data"]
    assert (status["container"], status["file_count"]) == ("zip", 2)
    alone = server.convert(document("page", 3), "png", pages="2", headers=JSON).json()["data"]
    assert (alone["container"], alone["file_count"]) == (None, 1)


def test_the_quality_for_a_size_is_returned(server: Running) -> None:
    photo = saved(Image.effect_noise((200, 150), 60), "PNG")
    large = len(server.convert(photo, "jpeg", quality="95").content)
    data = server.convert(photo, "jpeg", quality="95", max_bytes=str(large // 2), headers=JSON).json()["data"]
    assert data["processed_size"] <= large // 2
    assert 1 <= data["quality_used"] < 95
    assert server.convert(image(), "jpeg", headers=JSON).json()["data"]["quality_used"] is None


def test_options_in_json(server: Running) -> None:
    file_id = server.upload(document("page", 2), "a.pdf")["file_id"]
    body = {"output_format": "png", "pages": "all", "password": None}
    data = server.request("POST", f"/files/{file_id}/convert", json=body).json()["data"]
    assert (data["container"], data["file_count"]) == ("zip", 2)
    text = {"output_format": "jpeg", "quality": "80"}
    refused = server.request("POST", f"/files/{file_id}/convert", json=text)
    problem(refused, 400, "invalid_parameter", param="quality", reason="not_an_integer")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gamma": "0.05"}, "out_of_range"),
        ({"gravity": "2,0"}, "malformed"),
        ({"crop": "16:0"}, "malformed"),
        ({"pad": "1,2"}, "malformed"),
        ({"frames": "every:1"}, "malformed"),
        ({"colors": "1"}, "out_of_range"),
        ({"pages": "3"}, "out_of_range"),
        ({"pages": "0"}, "out_of_range"),
        ({"pages": "x"}, "malformed"),
        ({"quality": "101"}, "out_of_range"),
        ({"quality": "80.5"}, "not_an_integer"),
        ({"max_bytes": "999"}, "out_of_range"),
        ({"bit_depth": "9"}, "unknown"),
        ({"qualty": "80"}, "unknown_parameter"),
        ({"dry_run": "maybe"}, "malformed"),
        ({"lossless": "Truely"}, "malformed"),
    ],
)
def test_invalid_options_cost_nothing(server: Running, options: dict[str, str], reason: str) -> None:
    before = server.request("GET", "/account").json()["data"]["credits_remaining"]
    response = server.convert(document("page", 2), "png", **options)
    problem(response, 400, "invalid_parameter", param=next(iter(options)), reason=reason)
    assert server.request("GET", "/account").json()["data"]["credits_remaining"] == before


def test_an_unknown_color_is_explained(server: Running) -> None:
    response = server.convert(image(), "png", background="colorless")
    problem(response, 400, "invalid_parameter", param="background", reason="malformed")
    assert response.json()["error"]["message"] == "background must be a CSS color such as #fff or white."


def test_options_without_effect_are_reported(server: Running) -> None:
    response = server.convert(image(), "png", password="secret", quality="70")
    assert response.headers["X-Warnings"] == "quality_ignored, option_ignored"


def test_defaults_are_as_if_not_given(server: Running) -> None:
    defaults = {"progressive": "false", "raw_mode": "develop", "effort": "5", "lossless": "False", "metadata": "safe"}
    headers = {"Idempotency-Key": "defaults"}
    plain = server.convert(image(), "bmp", headers=headers)
    explicit = server.convert(image(), "bmp", headers=headers, **defaults)
    assert explicit.headers["Idempotency-Replayed"] == "true"
    assert "X-Warnings" not in explicit.headers
    assert explicit.content == plain.content


def test_a_dry_run_describes_the_conversion(server: Running) -> None:
    before = server.request("GET", "/account").json()["data"]
    response = server.convert(image(), "webp", dry_run="true", quality="70")
    assert response.headers["Content-Type"] == "application/json"
    data = response.json()["data"]
    assert (data["input_format"], data["output_format"], data["credits"]) == ("jpeg", "webp", 1)
    assert (data["width"], data["height"], data["pages"]) == (64, 48, 1)
    assert data["path"] == ["jpeg -> raster", "metadata", "raster -> webp"]
    assert data["losses"] == ["detail"]
    assert data["options"]["quality"] == 70
    described = server.convert(document("page", 7), "png", dry_run="true", password="secret").json()["data"]
    assert (described["pages"], described["container"], described["file_count"]) == (1, None, 1)
    assert [warning["code"] for warning in described["warnings"]] == ["pages_dropped"]
    archived = server.convert(document("page", 7), "png", dry_run="true", pages="2-4", width="300").json()["data"]
    assert (archived["width"], archived["pages"], archived["container"], archived["file_count"]) == (300, 3, "zip", 3)
    assert archived["warnings"] == []
    assert "password" not in described["options"]
    after = server.request("GET", "/account").json()["data"]
    assert after["credits_remaining"] == before["credits_remaining"]


def test_an_operation_of_its_own_for_dry_runs(server: Running) -> None:
    form = {"output_format": "webp", "quality": "70"}
    key = server.account(1)

    found = server.request("POST", "/convert/inspect", key, files={"file": ("photo.png", image())}, data=form)

    dry = server.convert(image(), "webp", dry_run="true", quality="70")
    assert found.json()["data"] == dry.json()["data"]
    assert found.json()["meta"]["credits_remaining"] == 1
    problem(
        server.request(
            "POST", "/convert/inspect", key, files={"file": ("a.jpg", b"words")}, data={"output_format": "png"}
        ),
        400,
        "invalid_file_type",
    )


def test_a_dry_run_of_a_broken_file(server: Running) -> None:
    problem(server.convert(b"words", "png", dry_run="true"), 400, "invalid_file_type")
    problem(server.convert(image()[:60], "png", dry_run="true"), 500, "processing_failed", reason="corrupt_input")
    problem(server.convert(image(), "xyz", dry_run="true"), 400, "unsupported_conversion")


def test_options_in_the_query_are_refused(server: Running) -> None:
    before = server.request("GET", "/account").json()["data"]["credits_remaining"]
    form: dict[str, Any] = {"files": {"file": ("photo.jpg", image())}, "data": {"output_format": "png"}}
    refused = server.request("POST", "/convert?width=20", **form)
    problem(refused, 400, "invalid_parameter", reason="unknown_parameter")
    assert refused.json()["error"]["param"] == "width"
    assert refused.json()["error"]["message"] == "There is no parameter width in the query."
    problem(server.request("GET", "/account/usage?width=20"), 400, "invalid_parameter", reason="unknown_parameter")
    assert server.request("GET", "/account").json()["data"]["credits_remaining"] == before


def test_an_idempotency_key_covers_a_path_and_its_json_form(server: Running) -> None:
    form: dict[str, Any] = {"files": {"file": ("photo.jpg", image())}, "data": {"output_format": "png"}}
    headers = {"Idempotency-Key": "twins"}
    binary = server.request("POST", "/convert", headers=headers, **form)
    described = server.request("POST", "/convert/json", headers=headers, **form)
    assert (described.status_code, described.headers["Idempotency-Replayed"]) == (200, "true")
    assert described.json()["data"]["processed_size"] == len(binary.content)
    assert described.headers["X-Credits-Remaining"] == binary.headers["X-Credits-Remaining"]
    again = server.request("POST", "/convert", headers=headers, **form)
    assert (again.headers["Idempotency-Replayed"], again.content) == ("true", binary.content)


@pytest.mark.parametrize(("text", "enlarged"), [("1", True), ("YES", True), ("on", True), ("0", False), ("off", False)])
def test_words_for_true_and_false(server: Running, text: str, enlarged: bool) -> None:
    response = server.convert(image(), "png", width="128", enlarge=text)
    assert (response.headers["X-Width"], response.headers["X-Height"]) == (("128", "96") if enlarged else ("64", "48"))
    assert response.headers.get("X-Warnings") == (None if enlarged else "not_enlarged")


def test_a_side_beyond_what_the_target_holds_is_invalid(server: Running) -> None:
    for options in ({"width": "16384"}, {"height": "16384", "enlarge": "true"}):
        refused = server.convert(image(), "webp", **options)
        problem(refused, 400, "invalid_parameter", reason="out_of_range")
        assert refused.json()["error"]["details"]["max"] == 16_383
    tall = io.BytesIO()
    Image.new("L", (10, 5000)).save(tall, "PNG")
    refused = server.convert(tall.getvalue(), "webp", width="40", enlarge="true")
    problem(refused, 400, "invalid_parameter", reason="out_of_range")
    assert (refused.json()["error"]["param"], refused.json()["error"]["details"]) == ("height", {"max": 16_383})
