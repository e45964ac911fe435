"""The tools of agents, called by the client of the protocol's own package: over standard streams, and over HTTP.

The package is imported by these tests, and not by each process that collects all tests.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import base64
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.support.command_line import COMMAND, invoke
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.samples.tool_requests import tool_requests
from tests.support.servers.in_process import Running
from web.agents.calls import MAX_DATA, AgentError, decode

if TYPE_CHECKING:
    from mcp.client.client import Client

_TOOLS = {"convert", "run_tool", "inspect", "list_formats", "describe_options", "get_job", "account"}


class Agent:
    """Calls tools."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __call__(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a tool, whose text is the same. Asserts that it succeeded."""
        result = await self.client.call_tool(name, arguments)
        assert not result.is_error, result.structured_content
        assert json.loads(result.content[0].text) == result.structured_content  # type: ignore[union-attr]
        found: dict[str, Any] = result.structured_content
        return found

    async def refused(self, name: str, **arguments: Any) -> str:
        """The code and the parameter of the error of a tool."""
        result = await self.client.call_tool(name, arguments)
        assert result.is_error, result.structured_content
        error = result.structured_content["error"]
        assert error["message"].endswith(".")
        return f"{error['code']} {error.get('param', '')}".strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an image, a PDF of three pages, and a link to a file outside of it."""
    root = tmp_path / "root"
    root.mkdir()
    (root / "photo.png").write_bytes(sample("png"))
    (root / "pages.pdf").write_bytes(document("pages", 3))
    (tmp_path / "secret.png").write_bytes(sample("png"))
    (root / "link.png").symlink_to("../secret.png")
    return root


@asynccontextmanager
async def over_stdio(folder: Path, *arguments: str, **environment: str) -> AsyncIterator[Agent]:
    from mcp.client.client import Client
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = StdioServerParameters(
        command=COMMAND, args=["mcp", "--root", str(folder), *arguments], env={**os.environ, **environment}
    )
    assert sys.__stderr__  # not the default, sys.stderr at the import, which can be that of another test
    async with Client(stdio_client(command, errlog=sys.__stderr__)) as client:
        yield Agent(client)


@asynccontextmanager
async def over_http(server: Running, authorization: str, mode: str = "auto") -> AsyncIterator[Agent]:
    import httpx2
    from mcp.client.client import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": authorization}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as sender,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=sender), mode=mode) as client,
    ):
        yield Agent(client)


def _encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


async def _check_paths(agent: Agent, folder: Path) -> None:
    """Files by their paths: what is written, and what is refused."""
    made = await agent("convert", path="photo.png", output_format="webp", options={"width": 20})
    assert made["outputs"] if "outputs" in made else made["url"]
    with Image.open(folder / "photo.webp") as image:
        assert (image.format, image.width) == ("WEBP", 20)
    assert await agent.refused("convert", path="photo.png", output_format="webp") == "file_error"
    await agent("convert", path="photo.png", output_format="webp", overwrite=True)

    for path in ("../secret.png", str(folder.parent / "secret.png"), "link.png", "/etc/passwd"):
        assert await agent.refused("convert", path=path, output_format="webp") == "forbidden_path"
        assert await agent.refused("inspect", path=path, output_format="webp") == "forbidden_path"
        assert await agent.refused("run_tool", tool="pdf-merge", paths=["pages.pdf", path]) == "forbidden_path"
        place = {"path": "photo.png", "output_format": "bmp", "output_path": path, "overwrite": True}
        assert await agent.refused("convert", **place) == "forbidden_path"
    assert {path.name for path in folder.parent.iterdir()} == {"root", "secret.png"}
    assert (folder.parent / "secret.png").read_bytes() == sample("png")

    merged = await agent(
        "run_tool", tool="pdf-merge", paths=["pages.pdf", "pages.pdf"], options={"outline": True}, output_path="all.pdf"
    )
    assert (merged["pages"], (folder / "all.pdf").exists()) == (6, True)


async def _check_data(agent: Agent) -> None:
    """Files in the arguments, inspections and refusals, which are the same everywhere."""
    image = _encoded(sample("png"))
    made = await agent("convert", data=image, output_format="jpeg", options={"quality": 50})
    (file,) = made["files"]
    assert base64.b64decode(file["data"])[:3] == b"\xff\xd8\xff"
    options = {"pages": "all", "width": 30}
    found = await agent("inspect", data=_encoded(document("pages", 3)), output_format="png", options=options)
    assert (found["input_format"], found["pages"], found["width"], found["options"]["width"]) == ("pdf", 3, 30, 30)
    assert (await agent("list_formats", input_format="heif"))["by_input_format"].keys() == {"heic"}
    every_format = await agent("list_formats")
    assert len(json.dumps(every_format)) <= 2000
    assert {"heic", "docx"} <= {*every_format["input_formats"]}
    pair = await agent("describe_options", input_format="heic", output_format="jpg")
    assert pair["options"]["properties"]["quality"]["maximum"] == 100
    tool = await agent("describe_options", tool="pdf-watermark")
    assert (tool["options"]["text"]["type"], [*tool["files"]]) == ("string", ["stamp"])
    assert await agent.refused("describe_options", input_format="heic") == "invalid_parameter output_format"

    def refused(**given: Any) -> Awaitable[str]:
        return agent.refused("convert", **{"data": image, "output_format": "webp", **given})

    assert await refused(options={"quality": 101}) == "invalid_parameter quality"
    assert await refused(options={"qualty": 50}) == "invalid_parameter qualty"
    assert await refused(quality=50) == "invalid_parameter quality"
    assert await refused(output_format=None) == "invalid_parameter output_format"
    assert await refused(output_format="xyz") in ("unsupported_conversion", "unsupported_conversion output_format")
    assert await refused(data="no base 64") == "invalid_parameter data"
    assert await refused(data=_encoded(b"\0unknown")) == "invalid_file_type"
    assert await refused(data=None) == "invalid_parameter"
    assert await agent.refused("run_tool", tool="pdf-rotate", data=image, options={"angle": 90}) == "invalid_file_type"
    assert await agent.refused("run_tool", tool="pdf-mirror", data=image) == "not_found tool"
    assert await agent.refused("get_job", job_id="job_unknown") == "not_found"


async def test_files_of_this_machine(folder: Path) -> None:
    async with over_stdio(folder) as agent:
        listed = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert listed.keys() == _TOOLS
        assert len(json.dumps([tool.model_dump(exclude_none=True) for tool in listed.values()])) <= 10_000
        assert not {"url", "as_job"} & listed["convert"].input_schema["properties"].keys()
        assert "pdf-watermark" in (listed["run_tool"].description or "")

        await _check_paths(agent, folder)
        await _check_data(agent)
        assert (await agent("account"))["account"] is None
        stamped = await agent("run_tool", tool="pdf-watermark", path="pages.pdf", files={"stamp": "photo.png"})
        assert stamped["outputs"] == [str(folder / "pages-pdf-watermark.pdf")]
        kept = {"attachments": ["photo.png", "photo.png"]}
        assert "error" not in await agent("run_tool", tool="pdf-attach", path="pages.pdf", files=kept)
        extracted = await agent("run_tool", tool="pdf-extract-attachments", path="pages-pdf-attach.pdf")
        names = [Path(one).name.removeprefix("pages-pdf-attach-") for one in extracted["outputs"]]
        assert names == ["pdf-extract-attachments-photo.png", "pdf-extract-attachments-photo (2).png"]
        marked = await agent(
            "convert",
            path="photo.png",
            output_path="photo.jpg",
            options={"watermark": "photo.png", "output_profile": "p3"},
        )
        assert marked["outputs"] == [str(folder / "photo.jpg")]
        missing = {"watermark": "no.png"}
        assert await agent.refused("convert", path="photo.png", output_format="bmp", options=missing) == "file_error"
        pages = await agent("convert", path="pages.pdf", output_format="png", options={"pages": "1-2"})
        assert pages["outputs"] == [str(folder / "pages-01.png"), str(folder / "pages-02.png")]


async def test_files_of_this_machine_on_a_server(folder: Path, server: Running) -> None:
    key = server.account(1)
    async with over_stdio(folder, "--remote", server.url, CONVERTD_API_KEY=key) as agent:
        await agent("convert", path="photo.png", output_format="webp", options={"watermark": "photo.png"})
        assert await agent.refused("convert", path="photo.png", output_format="gif") == "no_credits"
        assert (await agent("account"))["credits_remaining"] == 0
        assert await agent.refused("convert", path="link.png", output_format="webp") == "forbidden_path"

    with Image.open(folder / "photo.webp") as image:
        assert image.format == "WEBP"


@pytest.mark.parametrize("mode", ["auto", pytest.param("legacy", marks=pytest.mark.long)])
async def test_over_http(server: Running, mode: str) -> None:
    key = server.account(10, purchased=1)
    async with over_http(server, f"Bearer {key}", mode) as agent:
        listed = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        assert listed.keys() == _TOOLS
        assert not {"path", "paths", "output_path", "overwrite"} & listed["run_tool"].input_schema["properties"].keys()

        await _check_data(agent)
        assert await agent.refused("convert", path="/etc/passwd", output_format="png") == "invalid_parameter path"
        assert (
            await agent.refused("convert", url="http://127.0.0.1/a.png", output_format="png") == "invalid_parameter url"
        )
        job = await agent("convert", data=_encoded(sample("png")), output_format="gif", as_job=True)
        done = await agent("get_job", job_id=job["job_id"], wait=30)
        url = done["url"].replace("http://localhost:8000", server.url)
        assert (done["status"], http.get(url).content[:3]) == ("completed", b"GIF")
        assert (await agent("account"))["credits_remaining"] == 9


async def test_the_configurations_in_the_documentation(folder: Path, server: Running) -> None:
    page = http.get(f"{server.url}/docs/sdks").text.partition('id="agents"')[2]
    local, remote = (
        json.loads(unescape(text))["mcpServers"]["convertd"] for text in re.findall(r"<code>({.*?})</code>", page)
    )
    assert (local["command"], local["args"][:2]) == ("convertd", ["mcp", "--root"])
    async with over_stdio(folder, *local["args"][3:]) as agent:
        assert (await agent("account"))["account"] is None
    assert urlsplit(remote["url"]).path == "/mcp"
    async with over_http(server, remote["headers"]["Authorization"].replace("cvd_live_…", server.key)) as agent:
        assert (await agent("account"))["credits_remaining"]


def test_a_key_is_needed_and_only_posts_are_answered(server: Running) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}

    problem(http.post(f"{server.url}/mcp", json=message), 401, "invalid_api_key")
    problem(http.get(f"{server.url}/mcp", headers=server.auth), 405, "method_not_allowed")
    large = http.post(f"{server.url}/mcp", content=b" " * (2 * MAX_DATA + 1), headers=server.auth)
    assert large.status_code == 413


def test_a_file_in_arguments_is_limited() -> None:
    assert len(decode(_encoded(bytes(MAX_DATA)))) == MAX_DATA
    with pytest.raises(AgentError, match="more than"):
        decode(_encoded(bytes(MAX_DATA + 9)))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [(("--root", "none"), 2, "none is not a folder"), (("--remote", "http://x"), 2, "KEY")],
)
def test_wrong_usage(tmp_path: Path, arguments: tuple[str, ...], code: int, message: str) -> None:
    done = invoke(tmp_path, "mcp", *arguments, CONVERTD_API_KEY="")

    assert (done.exit_code, done.stdout, message in done.stderr) == (code, "", True)


def test_the_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.setitem(sys.modules, "mcp_types", None)
    for module in ("web.agents.protocol", "web.cli.mcp_server"):
        monkeypatch.delitem(sys.modules, module, raising=False)

    done = invoke(tmp_path, "mcp")

    assert (done.exit_code, done.stderr) == (
        1,
        "convertd: agents need mcp and convertd-client; run: sh config/setup.sh mcp, or pip install mcp ./web/client\n",
    )


@pytest.mark.long
async def test_every_tool(folder: Path) -> None:
    async with over_stdio(folder) as agent:
        for name, request in tool_requests().items():
            paths = [f"{name} {number}" for number in range(len(request.inputs))]
            files = {field: f"{name} {field}" for field in request.files}
            contents = [*request.inputs, *request.files.values()]
            for path, data in zip([*paths, *files.values()], contents, strict=True):
                (folder / path).write_bytes(data)

            made = await agent("run_tool", tool=name, paths=paths, options=dict(request.options), files=files)

            assert len(made["outputs"]) == request.count, name
