"""Every option of images has the same effect, however a conversion is asked for."""

from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from convertd_client import Client
from engine import ConversionError, OptionValues
from engine.registry import load_registry
from plugins._color.profiles import named
from tests.support.command_line import invoke
from tests.support.requests.batches import add, create
from tests.support.results.conversions import opened
from tests.support.samples.generated import saved
from tests.support.samples.option_images import convert_example, files_of, source_file
from tests.support.servers.in_process import Running
from web.docs.option_examples import OPTION_EXAMPLES, OptionExample

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
)
"""Options whose effect no image shows."""
_TARGETS = ("jpeg", "png", "webp", "avif")
_NOT_IN_FILES = {"filename"}  # an option that changes no file


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
def test_options_have_the_same_effect_by_each_door(
    server: Running, tmp_path: Path, door: str, pytestconfig: pytest.Config
) -> None:
    """Each case by every other door, with --long by all."""
    convert = getattr(_Door(server, server.account(100), tmp_path), door)
    step = 1 if pytestconfig.getoption("long") else 2
    for case in _cases()[_DOORS.index(door) % step :: step]:
        assert convert(case) == case.result, case.options
