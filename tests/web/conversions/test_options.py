"""Options of conversions over all endpoints that take them: the same effect, however a conversion is asked for."""

import io
import zipfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from convertd_client import Client
from engine import ConversionError, OptionValues
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._color.profiles import named
from tests.support.command_line import invoke
from tests.support.requests.batches import add, create
from tests.support.requests.checks import problem
from tests.support.results.conversions import opened
from tests.support.samples.forms import image
from tests.support.samples.generated import saved
from tests.support.samples.option_images import convert_example, files_of, source_file
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running
from web.docs.option_examples import OPTION_EXAMPLES, OptionExample

JSON = {"Accept": "application/json"}
_ARTIST = 0x13B  # kept, unless `metadata` says otherwise
_PROFILE = "adobe-rgb"
_UNSEEN = (
    OptionExample({"metadata": "none"}, ""),
    OptionExample({"dpi": 300}, "", output_format="png"),
    OptionExample({"bit_depth": 16}, "", output_format="png"),
    OptionExample({"output_profile": _PROFILE}, ""),
    OptionExample({"intent": "absolute", "color_space": "cmyk"}, "", output_format="jpeg"),
    OptionExample({"lossless": True}, ""),
    OptionExample({"effort": 2}, ""),
    OptionExample({"progressive": True}, "", output_format="jpeg"),
    OptionExample({"fps": 2}, "", "film"),
    OptionExample({"lossy": 200}, "", "film", output_format="png"),
)
_TARGETS = ("jpeg", "png", "webp", "avif")
_NOT_IN_FILES = {"filename"}  # an option that changes no file


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
    defaults = {"raw_mode": "develop", "effort": "5", "lossless": "False", "metadata": "safe"}
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
    assert [warning["code"] for warning in described["warnings"]] == ["option_ignored", "pages_dropped"]
    archived = server.convert(document("page", 7), "png", dry_run="true", pages="2-4", width="300").json()["data"]
    assert (archived["width"], archived["pages"], archived["container"], archived["file_count"]) == (300, 3, "zip", 3)
    assert archived["warnings"] == []
    assert "password" not in described["options"]
    after = server.request("GET", "/account").json()["data"]
    assert after["credits_remaining"] == before["credits_remaining"]


def test_a_protected_result(server: Running) -> None:
    response = server.convert(image(), "pdf", user_password="sesame", allow="print")

    assert response.status_code == 200
    with pymupdf.open(stream=response.content, filetype="pdf") as protected:
        assert (protected.needs_pass, protected.authenticate("sesame")) == (1, 2)
    problem(
        server.convert(image(), "pdf", allow="print"), 400, "invalid_parameter", param="user_password", reason="missing"
    )


def test_an_operation_of_its_own_for_dry_runs(server: Running) -> None:
    form = {"output_format": "webp", "quality": "70"}
    key = server.account(1)

    found = server.request("POST", "/convert/inspect", key, files={"file": ("photo.png", image())}, data=form)

    dry = server.convert(image(), "webp", dry_run="true", quality="70")
    assert found.json()["data"] == dry.json()["data"]
    assert found.json()["meta"]["credits_remaining"] == 1
    words: dict[str, Any] = {"files": {"file": ("a.jpg", b"words")}, "data": {"output_format": "png"}}
    problem(server.request("POST", "/convert/inspect", key, **words), 400, "invalid_file_type")


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
    assert server.request("GET", "/account/usage?utm_source=mail").status_code == 200
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


"""Options whose effect no image shows."""


@dataclass
class _Case:
    """A file, options that have an effect beside each other, and the result of a conversion here."""

    data: bytes
    target: str
    options: dict[str, Any]
    result: bytes

    @property
    def files(self) -> dict[str, bytes]:
        """The files of options by name, that of a profile which has a name, too."""
        profile = {"output_profile": named(_PROFILE).data} if self.options.get("output_profile") == _PROFILE else {}
        return files_of(self.options) | profile

    @property
    def values(self) -> dict[str, Any]:
        """The other options."""
        return {name: value for name, value in self.options.items() if name not in self.files}


@cache
def _cases() -> list[_Case]:
    """Few cases that have all options."""
    cases: dict[tuple[str, str], list[_Case]] = {}
    for example in (*OPTION_EXAMPLES, *_UNSEEN):
        several = cases.setdefault((example.source, example.output_format), [])
        if not any(_is_added(case, example.options) for case in several):
            data = _file(example.source)
            several.append(_Case(data, example.output_format, {}, convert_example(data, {}, example.output_format)))
            assert _is_added(several[-1], example.options), example.option
    return [case for several in cases.values() for case in several]


def _file(source: str) -> bytes:
    """The file of the examples; the scene has metadata."""
    data = source_file(source)
    if source != "scene":
        return data
    image = opened(data)
    image.getexif()[_ARTIST] = "Jane"
    return saved(image, "PNG", exif=image.getexif())


def _is_added(case: _Case, options: OptionValues) -> bool:
    """Adds the options if they contradict no other one, and change the result."""
    if any(case.options.get(name, value) != value for name, value in options.items()):
        return False
    try:
        result = convert_example(case.data, {**case.options, **options}, case.target)
    except ConversionError:
        return False
    if result == case.result:
        return False
    case.options |= options
    case.result = result
    return True


@dataclass(frozen=True)
class _Door:
    """A server, a key, and a folder: where conversions are asked for."""

    server: Running
    key: str
    folder: Path

    def form(self, case: _Case, **more: str) -> bytes:
        values = {name: _text(value) for name, value in (case.values | more).items()}
        parts: Any = {"file": ("a.bin", case.data)} | {name: ("b.bin", file) for name, file in case.files.items()}
        values |= {} if "preset" in values else {"output_format": case.target}
        response = self.server.request("POST", "/convert", self.key, files=parts, data=values)
        assert response.status_code == 200, response.text
        return response.content

    def stored_file(self, case: _Case) -> bytes:
        file_id = self._upload(case.data)
        return self._result(f"/files/{file_id}/convert", self._body(case))

    def batch(self, case: _Case) -> bytes:
        batch = create(self.server, self.key)
        body = {"file_ids": add(self.server, batch, self.key, case.data), **self._body(case)}
        return self._result(f"/batch/{batch}/convert", body)

    def preset(self, case: _Case) -> bytes:
        assert self.server.request("PUT", "/presets/one", self.key, json=self._body(case)).status_code == 200
        plain = replace(case, options={})
        return self.form(plain, preset="one")

    def client(self, case: _Case) -> bytes:
        options: Any = case.values | case.files
        with Client(self.server.url, api_key=self.key) as client:
            return client.convert(case.data, case.target, **options).content

    def command(self, case: _Case) -> bytes:
        files = {"in": case.data, **case.files}
        for name, content in files.items():
            (self.folder / name).write_bytes(content)
        values = [f"--{name}={_text(value)}" for name, value in case.values.items() if value is not True]
        flags = [f"--{name}" for name, value in case.values.items() if value is True]
        paths = [f"--{name}={name}" for name in case.files]
        done = invoke(self.folder, "convert", "in", "-y", "-o", f"out.{case.target}", *values, *flags, *paths)
        assert done.exit_code == 0, done.stderr
        return (self.folder / f"out.{case.target}").read_bytes()

    def _body(self, case: _Case) -> dict[str, Any]:
        ids = {name: self._upload(content) for name, content in case.files.items()}
        return {"output_format": case.target, **case.values, **ids}

    def _upload(self, content: bytes) -> str:
        return str(self.server.upload(content, "a.bin", key=self.key)["file_id"])

    def _result(self, path: str, body: dict[str, Any]) -> bytes:
        data = self.server.request("POST", path, self.key, json=body).json()["data"]
        (entry,) = data.get("results", [data])
        return self.server.request("GET", entry["download_url"].removeprefix("/api/v1"), self.key).content


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def test_all_options_of_images_are_in_a_case() -> None:
    registry = load_registry()
    plans = [registry.plan([registry.formats["png"]], target, options={}) for target in _TARGETS]
    of_images = {name for plan in plans for name in plan.options}
    assert of_images - {name for case in _cases() for name in case.options} == _NOT_IN_FILES
    assert {name for case in _cases() for name in case.files} == {
        name for name, option in registry.options.items() if option.file
    }


_DOORS = ("form", "stored_file", "batch", "preset", "client", "command")


@pytest.mark.parametrize("door", _DOORS)
def test_each_door_has_the_same_effect(server: Running, tmp_path: Path, door: str, pytestconfig: pytest.Config) -> None:
    """Each case by every other door, with --long by all."""
    convert = getattr(_Door(server, server.account(100), tmp_path), door)
    step = 1 if pytestconfig.getoption("long") else 2
    for case in _cases()[_DOORS.index(door) % step :: step]:
        assert convert(case) == case.result, case.options
