"""convertd next to other image servers, which are installed into a cache folder: thumbor, ipx, fastify with sharp,
and Starlette with pyvips."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import distributions, version
from io import BytesIO
from math import nan
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
from PIL import Image

from benchmarks import server
from benchmarks.load_generator import LoadPlan
from benchmarks.measure import Variant, cpu_seconds, interleaved, load, memory, table, throughput_ratio
from benchmarks.processes import WORKERS, ServerProcess
from benchmarks.report import COLUMNS, Report, Row, info, required
from benchmarks.server import PHOTO, TINY, Runs, Workload

_CONVERTD = "convertd"
THUMBOR, IPX, FASTIFY, STARLETTE = "thumbor", "ipx", "fastify and sharp", "Starlette and pyvips"
LOADS = ((TINY, 16), (PHOTO, 4), (PHOTO, 16))
"""Workloads and numbers of connections."""

_INSTALLED = "installed"  # lists the packages; exists when the environment is complete
_INSTALL_TIMEOUT = 600  # seconds

_THUMBOR = """
import os

ALLOW_UNSAFE_URL = True
LOADER = "thumbor.loaders.file_loader"
FILE_LOADER_ROOT_PATH = os.environ["FOLDER"]
STORAGE = "thumbor.storages.no_storage"
RESULT_STORAGE = None
"""
_IPX = """
import { createServer } from "node:http";
import { createIPX, createIPXNodeServer, ipxFSStorage } from "ipx";

const ipx = createIPX({ storage: ipxFSStorage({ dir: process.env.FOLDER }) });
createServer(createIPXNodeServer(ipx)).listen(Number(process.env.PORT), "127.0.0.1");
"""
_FASTIFY = """
import multipart from "@fastify/multipart";
import Fastify from "fastify";
import sharp from "sharp";

sharp.cache(false);
const app = Fastify();
await app.register(multipart, { limits: { fileSize: 1e8 } });
app.get("/", async () => "");
app.post("/", async (request, reply) => {
  const file = await request.file();
  const content = await file.toBuffer();
  const format = file.fields.output_format.value;
  const quality = Number(file.fields.quality.value);
  return reply.type(`image/${format}`).send(await sharp(content).toFormat(format, { quality }).toBuffer());
});
await app.listen({ port: Number(process.env.PORT), host: "127.0.0.1" });
"""
_STARLETTE = """
import pyvips
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.routing import Route

pyvips.cache_set_max(0)

def encode(content, output_format, quality):
    return pyvips.Image.new_from_buffer(content, "").write_to_buffer("." + output_format, Q=quality, keep="none")

async def convert(request):
    if request.method == "GET":
        return Response()
    form = await request.form()
    content, output_format = await form["file"].read(), form["output_format"]
    result = await run_in_threadpool(encode, content, output_format, int(form["quality"]))
    return Response(result, media_type=f"image/{output_format}")

app = Starlette(routes=[Route("/", convert, methods=["GET", "POST"])])
"""


@dataclass(frozen=True)
class Environment:
    """Packages in a folder of their own: of npm, or in a virtual environment of Python."""

    name: str
    packages: tuple[str, ...]
    uses_npm: bool = False

    def install(self, cache: Path) -> Path:
        """Returns the folder below `cache`. Does nothing if it is complete. Raises OSError and CalledProcessError."""
        folder, wanted = cache / self.name, "\n".join(self.packages)
        marker = folder / _INSTALLED
        if not marker.is_file() or marker.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if self.uses_npm:
                _run("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *self.packages)
            else:
                _run(sys.executable, "-m", "venv", folder)
                _run(folder / "bin" / "pip", "install", *self.packages)
            marker.write_text(wanted)
        return folder

    def version(self, folder: Path, package: str) -> str:
        """Returns the name and version of an installed package; for npm, `package` is a path below node_modules."""
        if self.uses_npm:
            manifest = json.loads((folder / "node_modules" / package / "package.json").read_text())
            return f"{manifest['name']} {manifest['version']}"
        (library,) = (folder / "lib").glob("python*/site-packages")
        found = next(found for found in distributions(path=[str(library)]) if found.name.lower() == package)
        return f"{package} {found.version}"


@dataclass(frozen=True)
class Peer:
    """Another server: its packages and its program, which is written into `file`.

    The command and the path of a conversion are templates.
    """

    name: str
    environment: Environment
    shown: tuple[str, ...]  # packages whose versions are reported
    file: str
    program: str
    command: tuple[str, ...]
    path: str = "/"

    @contextmanager
    def running(self, cache: Path, inputs: Path) -> Iterator[Running]:
        """Installs and runs the server. Raises OSError, CalledProcessError, and RuntimeError if it does not start."""
        folder = self.environment.install(cache)
        (folder / self.file).write_text(self.program)
        versions = ", ".join(self.environment.version(folder, package) for package in self.shown)
        with _PeerProcess(self, folder, inputs) as process:
            yield Running(process.pid, process.url, inputs, versions)


class _PeerProcess(ServerProcess):
    """The process of a peer that is installed in `folder`."""

    def __init__(self, peer: Peer, folder: Path, inputs: Path) -> None:
        super().__init__()
        self.variables = {"PORT": str(self.port), "FOLDER": str(inputs)}
        self.url = f"http://127.0.0.1:{self.port}{peer.path}"
        self._command = [part.format(folder=folder, port=self.port) for part in peer.command]

    @property
    def command(self) -> list[str]:
        return self._command

    def answers(self) -> bool:
        """Whether a GET request succeeds, which is a conversion for servers that convert on GET."""
        with suppress(httpx.HTTPError):
            return httpx.get(_address(self.url, TINY), timeout=60).is_success
        return False

    def kill(self) -> None:
        """Kills the server and all processes below it."""
        self.kill_tree()
        super().kill()


def _address(url: str, workload: Workload) -> str:
    """The URL of a conversion; the same if it has no places for the file and the options."""
    return url.format(file=workload.file, format=workload.output_format, quality=workload.quality)


@dataclass(frozen=True)
class Running:
    """A running server. `url` converts; for GET requests, it has places for the file and the options."""

    pid: int
    url: str
    inputs: Path
    versions: str
    key: str = ""

    @property
    def posts(self) -> bool:
        """Whether files are posted."""
        return "{" not in self.url

    def variant(self, workload: Workload, seconds: float, connections: int) -> Variant:
        """Returns a load of that many connections."""
        file = str(self.inputs / workload.file) if self.posts else ""
        url, fields = _address(self.url, workload), workload.fields
        plan = LoadPlan(url, (self.key,), file, seconds, concurrency=connections, fields=fields)
        return partial(load, plan, partial(cpu_seconds, self.pid))

    def result_size(self, workload: Workload) -> int:
        """Converts once. Returns the size of the result in bytes. Raises ValueError for another picture."""
        if self.posts:
            files = {"file": (workload.file, (self.inputs / workload.file).read_bytes())}
            headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
            response = httpx.post(self.url, data=dict(workload.fields), files=files, headers=headers, timeout=60)
        else:
            response = httpx.get(_address(self.url, workload), timeout=60)
        picture = Image.open(BytesIO(response.raise_for_status().content))
        if picture.size != workload.size or picture.format != workload.output_format.upper():
            raise ValueError(f"a result of {picture.size} in {picture.format}")
        return len(response.content)


NODE = Environment("node", ("fastify@5.12.8", "@fastify/multipart@10.1.9", "sharp@0.35.5", "ipx@3.1.1"), uses_npm=True)
PEERS = (
    Peer(
        THUMBOR,
        Environment("thumbor", ("thumbor==7.8.0", "pillow==12.3.0")),
        ("thumbor", "pillow"),
        "thumbor.conf",
        _THUMBOR,
        (
            *("{folder}/bin/thumbor", "--ip=127.0.0.1", "--port={port}", f"--processes={WORKERS}"),
            *("--conf={folder}/thumbor.conf", "--log-level=error"),
        ),
        "/unsafe/filters:format({format}):quality({quality})/{file}",
    ),
    Peer(
        IPX,
        NODE,
        ("ipx", "ipx/node_modules/sharp"),
        "ipx.mjs",
        _IPX,
        ("node", "{folder}/ipx.mjs"),
        "/f_{format},q_{quality}/{file}",
    ),
    Peer(FASTIFY, NODE, ("fastify", "sharp"), "fastify.mjs", _FASTIFY, ("node", "{folder}/fastify.mjs")),
    Peer(
        STARLETTE,
        Environment(
            "starlette",
            ("starlette==1.10.0", "uvicorn[standard]==0.54.0", "python-multipart==0.0.34", "pyvips[binary]==3.2.0"),
        ),
        ("starlette", "uvicorn", "pyvips-binary"),
        "program.py",
        _STARLETTE,
        (
            *("{folder}/bin/uvicorn", "program:app", "--app-dir={folder}", "--port={port}", f"--workers={WORKERS}"),
            *("--no-access-log", "--log-level=error"),
        ),
    ),
)


def measure(
    rounds: int, seconds: float, cache: Path, loads: Sequence[tuple[Workload, int]] = LOADS
) -> Iterator[Report]:
    """Installs the peers and measures them next to convertd, for runs of `seconds`. Ends them at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for workload in (TINY, PHOTO):
            workload.write(folder)
        ours = stack.enter_context(server.running(folder))
        url = f"{ours.process.api}/convert"
        servers = {_CONVERTD: Running(ours.pid, url, folder, version("convertd"), ours.keys[0])}
        problems: list[Row] = []
        for peer in PEERS:
            try:
                servers[peer.name] = stack.enter_context(peer.running(cache, folder))
            except (OSError, RuntimeError, subprocess.SubprocessError) as error:
                problems.append((peer.name, f"cannot be installed or started: {_reason(error)}", nan, nan, nan))
        rows = [*(_describe(name, running) for name, running in servers.items()), *problems]
        yield Report("Servers", ("server", "versions", "tiny bytes", "photo bytes", "memory MiB"), tuple(rows))
        runs: dict[str, Runs] = {}
        for workload, connections in loads:
            title = _title(workload, connections)
            variants = {name: running.variant(workload, seconds, connections) for name, running in servers.items()}
            runs[title] = asyncio.run(interleaved(variants, rounds))
            yield table(f"{title} ({rounds} x {seconds:g} s)", runs[title])
    yield Report("Requirements", COLUMNS, tuple(_requirements(runs)))


def _title(workload: Workload, connections: int) -> str:
    return f"{workload.title}, {connections} connections"


def _describe(name: str, running: Running) -> Row:
    return name, running.versions, *map(running.result_size, (TINY, PHOTO)), memory(running.pid)


def _requirements(runs: Mapping[str, Runs]) -> list[Row]:
    required_ratios = [(TINY, 16, {IPX: 0.7, THUMBOR: 0.4})]
    required_ratios += [(PHOTO, connections, dict.fromkeys((IPX, FASTIFY, STARLETTE), 1.0)) for connections in (4, 16)]
    rows = []
    for workload, connections, peers in required_ratios:
        found = runs.get(_title(workload, connections), {})
        for peer, limit in peers.items():
            metric = f"{_title(workload, connections)}: throughput / {peer}"
            if peer in found:
                share = throughput_ratio(found[_CONVERTD], found[peer])
                rows.append(required(metric, share, f">= {limit:g}", met=share >= limit))
            else:
                rows.append(info(metric, "not measured"))
    return rows


def _run(*command: str | Path) -> None:
    """Runs a command. Raises OSError, CalledProcessError and TimeoutExpired."""
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_INSTALL_TIMEOUT)


def _reason(error: Exception) -> str:
    """The first error that an installation printed, or else the last line of the message."""
    lines = error.stderr.splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    errors = (line for line in lines if line.lower().startswith(("error", "npm error")))
    return next(errors, str(error).strip().rpartition("\n")[2])
