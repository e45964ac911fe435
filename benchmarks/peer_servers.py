"""Other image servers: thumbor, ipx, fastify with sharp, and Starlette with pyvips."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import nan
from pathlib import Path

import httpx

from benchmarks import libraries
from benchmarks.libraries import NODE, PYVIPS, Environment
from benchmarks.load_generator import LoadPlan
from benchmarks.measure import Variant, cpu_seconds, load
from benchmarks.processes import WORKERS, ServerProcess
from benchmarks.workloads import DRAWING, PHOTO, THUMBNAIL, TINY, Workload

THUMBOR = "thumbor"
IPX = "ipx"
FASTIFY = "fastify and sharp"
STARLETTE = "Starlette and pyvips"

_TIMEOUT = 60  # seconds until a response

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
  const number = (name) => (file.fields[name] ? Number(file.fields[name].value) : undefined);
  const format = file.fields.output_format.value;
  const quality = number("quality");
  const image = sharp(content).resize({ width: number("width") });
  return reply.type(`image/${format}`).send(await image.toFormat(format, { quality }).toBuffer());
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

def encode(content, output_format, quality, width):
    if width:
        image = pyvips.Image.thumbnail_buffer(content, int(width))
    else:
        image = pyvips.Image.new_from_buffer(content, "")
    options = {"Q": int(quality)} if quality else {}
    return image.write_to_buffer("." + output_format, keep="none", **options)

async def convert(request):
    if request.method == "GET":
        return Response()
    form = await request.form()
    content, output_format = await form["file"].read(), form["output_format"]
    options = output_format, form.get("quality"), form.get("width")
    result = await run_in_threadpool(encode, content, *options)
    return Response(result, media_type=f"image/{output_format}")

app = Starlette(routes=[Route("/", convert, methods=["GET", "POST"])])
"""


@dataclass(frozen=True)
class Running:
    """A running server. `plan` returns a load of so many seconds and connections for one of the workloads."""

    pid: int
    versions: str
    workloads: Sequence[Workload]
    plan: Callable[[Workload, float, int], LoadPlan]

    def variant(self, workload: Workload, seconds: float, connections: int) -> Variant:
        """Returns the load of a workload, with the CPU time of the server's processes."""
        return partial(load, self.plan(workload, seconds, connections), partial(cpu_seconds, self.pid))

    def result_size(self, workload: Workload) -> float:
        """Sends one request. Returns the size of the result in bytes, NaN for a workload that the server cannot do.

        Raises ValueError for a wrong result, and HTTPError.
        """
        if workload not in self.workloads:
            return nan
        plan = self.plan(workload, 0, 1)
        if plan.file:
            files = [(plan.file_field, (workload.file, Path(plan.file).read_bytes()))] * plan.copies
            headers = {"Authorization": f"Bearer {plan.keys[0]}"} if plan.keys[0] else {}
            response = httpx.post(plan.url, data=plan.fields, files=files, headers=headers, timeout=_TIMEOUT)
        else:
            response = httpx.get(plan.url, timeout=_TIMEOUT)
        content = response.raise_for_status().content
        if not workload.check(content):
            raise ValueError(f"a wrong result of {workload.title} at {plan.url}")
        return len(content)


@dataclass(frozen=True)
class Peer:
    """Another server: its packages and its program, which is written into `file`.

    The command is a template. `path` returns the path at which GET converts a local file. To a server without it, files
    are posted.
    """

    name: str
    environment: Environment
    shown: tuple[str, ...]  # packages whose versions are reported
    file: str
    program: str
    command: str
    workloads: tuple[Workload, ...]
    path: Callable[[Workload], str] | None = None

    @contextmanager
    def running(self, cache: Path, inputs: Path) -> Iterator[Running]:
        """Installs and runs the server. The input files are in `inputs`.

        Raises OSError, SubprocessError, and RuntimeError if it does not start.
        """
        folder = self.environment.install(cache)
        (folder / self.file).write_text(self.program)
        versions = ", ".join(self.environment.version(folder, package) for package in self.shown)
        with _PeerProcess(self, folder, inputs) as process:
            yield Running(process.pid, versions, self.workloads, partial(self._plan, process.url, inputs))

    def _plan(self, url: str, inputs: Path, workload: Workload, seconds: float, connections: int) -> LoadPlan:
        if self.path:
            return LoadPlan(url + self.path(workload), ("",), "", seconds, concurrency=connections)
        file = str(inputs / workload.file)
        return LoadPlan(f"{url}/", ("",), file, seconds, concurrency=connections, fields=workload.fields)


class _PeerProcess(ServerProcess):
    """The process of a peer that is installed in `folder`."""

    def __init__(self, peer: Peer, folder: Path, inputs: Path) -> None:
        super().__init__()
        self.variables = {"PORT": str(self.port), "FOLDER": str(inputs)}
        self.url = f"http://127.0.0.1:{self.port}"
        self._path = peer.path(TINY) if peer.path else "/"
        words = peer.command.split()
        self._command = [word.format(folder=folder, port=self.port, workers=WORKERS) for word in words]

    @property
    def command(self) -> list[str]:
        return self._command

    def answers(self) -> bool:
        """Whether a GET request succeeds, which is a conversion for servers that convert on GET."""
        with suppress(httpx.HTTPError):
            return httpx.get(self.url + self._path, timeout=_TIMEOUT).is_success
        return False

    def kill(self) -> None:
        """Kills the server and all processes below it."""
        self.kill_tree()
        super().kill()


def _thumbor_path(workload: Workload) -> str:
    options = workload.fields
    size = f"{options['width']}x0/" if "width" in options else ""
    filters = f"format({options['output_format']}):quality({options['quality']})"
    return f"/unsafe/{size}filters:{filters}/{workload.file}"


def _ipx_path(workload: Workload) -> str:
    names = {"output_format": "f", "quality": "q", "width": "w"}
    modifiers = ",".join(f"{names[name]}_{value}" for name, value in workload.fields.items())
    return f"/{modifiers}/{workload.file}"


_IMAGES = (TINY, PHOTO, THUMBNAIL)

PEERS = (
    Peer(
        name=THUMBOR,
        environment=libraries.THUMBOR,
        shown=("thumbor", "pillow"),
        file="thumbor.conf",
        program=_THUMBOR,
        command="{folder}/bin/thumbor --ip=127.0.0.1 --port={port} --processes={workers} --conf={folder}/thumbor.conf"
        " --log-level=error",
        workloads=_IMAGES,
        path=_thumbor_path,
    ),
    Peer(
        name=IPX,
        environment=NODE,
        shown=("ipx", "ipx/node_modules/sharp"),
        file="ipx.mjs",
        program=_IPX,
        command="node {folder}/ipx.mjs",
        workloads=(*_IMAGES, DRAWING),
        path=_ipx_path,
    ),
    Peer(
        name=FASTIFY,
        environment=NODE,
        shown=("fastify", "sharp"),
        file="fastify.mjs",
        program=_FASTIFY,
        command="node {folder}/fastify.mjs",
        workloads=(*_IMAGES, DRAWING),
    ),
    Peer(
        name=STARLETTE,
        environment=PYVIPS,
        shown=("starlette", "uvicorn", "pyvips-binary"),
        file="program.py",
        program=_STARLETTE,
        command="{folder}/bin/uvicorn program:app --app-dir={folder} --port={port} --workers={workers} --no-access-log"
        " --log-level=error",
        workloads=(*_IMAGES, DRAWING),
    ),
)
