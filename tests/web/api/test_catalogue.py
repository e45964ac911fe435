"""GET /formats and /tools."""

import json
from pathlib import Path

import httpx
import pytest

from engine import Requirement
from engine.plugin_loader import Plugin
from engine.registry import Registry
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.servers.in_process import Running, Servers


def test_formats_lists_every_pair(server: Running, servers: Servers) -> None:
    body = http.get(f"{server.api}/formats").json()
    data = body["data"]
    pairs = {(pair["input_format"], pair["output_format"]) for pair in data["conversions"]}
    assert data["total"] == len(data["conversions"]) == len(pairs) == len(servers.registry.catalogue())
    assert pairs == {(s, t) for s, targets in data["by_input_format"].items() for t in targets}
    assert {("jpeg", "webp"), ("jpeg", "jpeg")} <= pairs
    assert list(body["meta"]) == ["request_id"]


def test_the_options_of_a_pair(server: Running, servers: Servers) -> None:
    data = server.request("GET", "/formats/JPG/webp").json()["data"]
    assert (data["input_format"], data["output_format"], data["credits"]) == ("jpeg", "webp", 1)
    assert data["path"] == ["jpeg -> raster", "metadata", "raster -> webp"]
    assert data["losses"] == ["detail"]
    quality = data["options"]["properties"]["quality"]
    assert (quality["minimum"], quality["maximum"], quality["default"]) == (1, 100, 87)
    assert "$schema" in data["options"]
    for plan in servers.registry.catalogue()[::48]:
        path = f"/formats/{plan.source}/{plan.target}"
        assert {*server.request("GET", path).json()["data"]["options"]["properties"]} == {
            *servers.registry.pair_options(plan)
        }


@pytest.mark.parametrize(
    ("pair", "name", "limits"),
    [
        ("png/webp", "width", {"maximum": 16_383}),
        ("png/psd", "height", {"maximum": 30_000}),
        ("png/bmp", "width", {"maximum": 65_535}),
        ("png/png", "bit_depth", {"enum": [8, 16]}),
        ("png/avif", "bit_depth", {"enum": [8, 10, 12]}),
        ("png/jpeg", "bit_depth", {"const": 8}),
    ],
)
def test_the_options_of_a_pair_are_limited_to_what_the_target_holds(
    server: Running, pair: str, name: str, limits: dict[str, object]
) -> None:
    schema = server.request("GET", f"/formats/{pair}").json()["data"]["options"]["properties"][name]

    assert schema.items() >= limits.items()


@pytest.mark.parametrize(
    ("pair", "taken", "absent"),
    [
        ("jpeg/pdf", {"quality", "max_bytes", "width", "crop", "metadata"}, {"lossless", "compression", "pages"}),
        ("svg/pdf", {"metadata"}, {"width", "dpi", "pages", "password", "quality"}),
        ("svg/png", {"width", "dpi", "background"}, {"enlarge", "pages"}),
        ("pdf/png", {"pages", "dpi", "password"}, {"enlarge"}),
    ],
)
def test_a_pair_lists_exactly_effective_options(server: Running, pair: str, taken: set[str], absent: set[str]) -> None:
    listed = server.request("GET", f"/formats/{pair}").json()["data"]["options"]["properties"].keys()

    assert taken <= listed
    assert not absent & listed


def test_the_options_of_a_pair_that_does_not_exist(server: Running) -> None:
    problem(server.request("GET", "/formats/jpeg/dng"), 400, "unsupported_conversion")
    problem(server.request("GET", "/formats/xyz/png"), 400, "unsupported_conversion")
    problem(server.request("GET", "/formats/jpeg"), 404, "not_found")


def test_tools_lists_every_plugin_that_reads(server: Running, servers: Servers) -> None:
    data = http.get(f"{server.api}/tools").json()["data"]
    families = {tool["plugin"]: tool for tool in data["tools"] if tool["id"].startswith("convert-")}
    assert data["total"] == len(data["tools"])
    used = {step for plan in servers.registry.catalogue() for step in plan.steps}
    assert set(families) == {one.name for one in servers.registry.plugins if one.reads and used & {*one.conversions}}
    jpeg = families["jpeg"]
    assert jpeg["input_formats"] == ["jpeg"]
    assert {"png", "webp", "jpeg"} <= set(jpeg["output_formats"])
    assert (jpeg["category"], jpeg["credits"], jpeg["endpoint"]) == ("image", 1, "/api/v1/convert")
    assert {"quality", "hdr"} <= {option["name"] for option in jpeg["options"]}
    assert families["pdf"]["category"] == "document"
    ids = [tool["id"] for tool in data["tools"]]
    assert len(ids) == len(set(ids))


def test_tools_lists_the_tools(server: Running) -> None:
    data = http.get(f"{server.api}/tools").json()["data"]
    found = {tool["id"]: tool for tool in data["tools"]}
    merge, delete = found["pdf-merge"], found["pdf-delete-pages"]
    assert (merge["endpoint"], merge["plugin"]) == ("/api/v1/pdf/merge", "pdf_merge")
    assert merge["files"] == {"minimum": 2, "maximum": 20}
    assert delete["endpoint"] == "/api/v1/pdf/delete-pages"
    assert [option["name"] for option in delete["options"]] == ["pages", "password", "sanitize", "filename"]
    assert {tool["credits"] for tool in (merge, delete)} == {1}
    assert merge["input_formats"] == merge["output_formats"] == ["pdf"]


def test_options_of_tools_are_described_once(server: Running, servers: Servers) -> None:
    answer = http.get(f"{server.api}/tools")
    data = answer.json()["data"]
    registry = servers.registry

    for tool in data["tools"]:
        own = registry.tools[tool["id"]].name if tool["id"] in registry.tools else None
        known = registry.tool_options(own) if own else registry.options
        for option in tool["options"]:
            described = data["options"][option.get("ref", option["name"])]
            expected = dict(known[option["name"]].schema)
            assert described["name"] == option["name"]
            assert described["description"] == expected.get("description", "")
            assert {name: described["schema"].get(name) for name in ("type", "enum", "minimum", "maximum")} == {
                name: expected.get(name) for name in ("type", "enum", "minimum", "maximum")
            }
            assert own or set(described["output_formats"]) <= {*tool["output_formats"]}
    descriptions = [json.dumps(option, sort_keys=True) for option in data["options"].values()]
    assert len(descriptions) == len({*descriptions})
    assert len(answer.content) < 250_000


def test_tools_whose_program_is_missing_are_not_offered(servers: Servers, tmp_path: Path) -> None:
    missing = Requirement("Tesseract", "reading", "apt-get install tesseract-ocr", present=False, tool="pdf-ocr")
    plugins = [plugin for plugin in servers.registry.plugins if plugin.name != "pdf_ocr"]
    registry = Registry([*plugins, Plugin("pdf_ocr", "", requirements=(missing,))])

    with servers.running(tmp_path, registry=registry) as server:
        listed = [tool["id"] for tool in server.request("GET", "/tools").json()["data"]["tools"]]
        documented = server.request("GET", "/openapi.json").json()["paths"]
        # The document of the shared registry, with which other clients compare responses, has these paths.
        paths = ("/pdf/ocr", "/pdf/ocr/json", "/tools/pdf-ocr", "/pdf/mirror")
        key = {"Authorization": f"Bearer {server.key}"}
        *answers, other = [httpx.post(server.api + path, headers=key) for path in paths]

    assert "pdf-merge" in listed
    assert "pdf-ocr" not in listed
    assert not [path for path in documented if "ocr" in path]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (404, "not_found")
        assert error["message"] == "pdf-ocr needs Tesseract, which is not installed here."
    assert other.json()["error"]["message"] == "This path does not exist."


@pytest.mark.parametrize("path", ["formats", "formats/jpeg/webp", "tools"])
def test_catalogues_are_cacheable(server: Running, path: str) -> None:
    first = http.get(f"{server.api}/{path}")
    assert "max-age" in first.headers["Cache-Control"]
    again = http.get(f"{server.api}/{path}", headers={"If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["X-Request-Id"] != first.headers["X-Request-Id"]
    other = http.get(f"{server.api}/{path}", headers={"If-None-Match": '"something-else"'})
    assert other.status_code == 200


def test_the_catalogue_is_public(servers: Servers, server: Running) -> None:
    response = http.get(f"{server.api}/formats")
    assert response.headers["X-RateLimit-Limit"] == "10000"
    assert "X-Credits-Remaining" not in response.headers
