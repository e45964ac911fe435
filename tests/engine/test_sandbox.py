"""Attacks from inside a worker process: each layer alone stops the attacks it covers; without layers they succeed."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from io import BytesIO
from pathlib import Path
from socket import AF_UNIX, create_server, socket

import pytest
import pytest_asyncio
from PIL import Image

from engine import ConversionError, sandbox
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.executor.disk_quota import reachable_by_tasks
from plugins.formats.eps import PROGRAMS
from tests.support.executors.isolated import MISBEHAVING, FileJob, ObservedExecutor, run_files

pytestmark = pytest.mark.asyncio(loop_scope="module")

_SECRET = "sk_live_known_to_the_server"
_LAYER_SETS = {
    "none": sandbox.ALWAYS,
    "all": sandbox.LAYERS,
    "unbounded": sandbox.LAYERS - {"few_threads"},
    **{name: sandbox.ALWAYS | {name, "no_new_privileges"} for name in sandbox.LAYERS - sandbox.ALWAYS},
    # Root's capabilities overrule it.
    "undumpable": sandbox.ALWAYS | {"undumpable", "no_capabilities"},
}
# The layers that stop each attack on their own.
_STOPPED_BY = {
    "connect": ("network_namespace", "landlock", "seccomp"),
    "connect_abstract": ("network_namespace", "landlock", "seccomp"),
    "make_socket": ("seccomp",),
    "run": ("landlock", "seccomp"),
    "fork": ("seccomp",),
    "read": ("landlock", "own_user"),
    **dict.fromkeys(("read_system", "read_shared", "list_system"), ("landlock",)),
    "list": ("landlock", "own_user"),
    "write": ("landlock", "own_user"),
    "kill": ("landlock", "own_user", "seccomp"),
    "trace": ("landlock", "own_user", "seccomp"),
    "link": ("landlock", "seccomp"),
    "pipe": ("landlock", "seccomp"),
    "spy": ("undumpable", "landlock", "seccomp"),
    "change_root": ("no_capabilities", "own_user", "seccomp"),
    "become_root": ("own_user", "seccomp"),
    "keep_in_memory": ("seccomp",),
    "displace": ("seccomp",),
    "loosen": ("own_user", "seccomp"),
    "redate": ("own_user", "seccomp"),
    "touch": ("own_user", "seccomp"),
    "watch": ("own_user", "seccomp"),
    "point": ("seccomp",),
    "point_connection": ("seccomp",),
    "allocate": ("seccomp",),
    "reserve": ("seccomp",),
    "lock": ("seccomp",),
}
_BY_LANDLOCK = {attack for attack, layers in _STOPPED_BY.items() if layers == ("landlock",)}
_PROGRAM = next(iter(PROGRAMS))
_NOBODY = 65_534
_GROUP = 60_000  # an additional group of the server, which no user has
# Users of servers: another than root's needs an installation that is not in root's home.
_USERS = [0, _NOBODY] if os.geteuid() == 0 and reachable_by_tasks(Path(sys.executable)) else [os.geteuid()]
_FOR_ROOT = ("trace", "become_root", "change_root")  # attacks that only root's processes could make in the first place

Starter = Callable[[str], Awaitable[LocalExecutor]]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[Starter]:
    """Starts executors by the name of their layers, with the misbehaving plugin."""
    executors: dict[str, LocalExecutor] = {}

    async def start(layers: str) -> LocalExecutor:
        if layers not in executors:
            executors[layers] = ObservedExecutor(1, _LAYER_SETS[layers], folder=Path(folder))
            await executors[layers].start()
        return executors[layers]

    # On a disk: a temporary folder in memory also limits the space that a file reserves.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(MISBEHAVING)
        patch.setenv("CONVERTD_SMTP_URL", _SECRET)
        patch.setenv("AWS_SECRET_ACCESS_KEY", _SECRET)
        yield start
        for executor in executors.values():
            await executor.close()


@pytest.fixture
def aims(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The target of each attack: another job's folder, a server's port, a process of the server's user."""
    foreign = tmp_path / "job-of-others" / "in.png"
    foreign.parent.mkdir(mode=0o700)
    foreign.write_bytes(b"private")
    foreign.chmod(0o600)
    with (
        create_server(("127.0.0.1", 0)) as server,
        socket(AF_UNIX) as local,
        subprocess.Popen(["sleep", "300"]) as sleeper,
    ):
        local.bind(b"")  # the kernel chooses a name without a path
        local.listen()
        yield {
            "connect": str(server.getsockname()[1]),
            "connect_abstract": local.getsockname()[1:].decode(),
            "run": "/bin/true",
            "read": str(foreign),
            "read_system": "/etc/passwd",
            "list_system": "/home",
            "read_shared": "/usr/share/common-licenses/GPL-2",
            "list": str(foreign.parent),
            "write": str(foreign.with_name("out.png")),
            "link": str(foreign),
            "kill": str(sleeper.pid),
            "trace": str(sleeper.pid),
            **dict.fromkeys(("point", "point_connection"), str(sleeper.pid)),
            **dict.fromkeys(("allocate", "reserve"), str(700 << 20)),  # more than the limit of a file
            "lock": "1000",
            "watch": str(foreign.parent),
            **dict.fromkeys(("loosen", "redate", "touch"), str(foreign)),
            "remember": _SECRET,
            "fill": str(2 << 20),
        }
        sleeper.kill()


def _job(folder: Path, deed: str, kind: str = "trouble", *, isolated: bool = True) -> FileJob:
    source = folder / f"in.{kind}"
    source.write_text(f"{'LAUNCH' if kind == 'launcher' else 'TROUBLE'} {deed}")
    return FileJob(Task((kind,), "png", own_process=isolated), [source], folder / "result.png")


async def _succeeds(
    executor: LocalExecutor,
    folder: Path,
    deed: str,
    limits: TaskLimits = TaskLimits(),
    kind: str = "trouble",
    *,
    isolated: bool = True,
) -> bool:
    job = _job(folder, deed, kind, isolated=isolated)
    await run_files(executor, job, limits)
    with Image.open(BytesIO(job.output.read_bytes())) as image:
        return image.convert("RGB").getpixel((0, 0)) == (255, 0, 0)


@pytest.mark.parametrize("attack", _STOPPED_BY)
async def test_layers_stop_attacks(started: Starter, tmp_path: Path, aims: dict[str, str], attack: str) -> None:
    deed = f"{attack} {aims.get(attack, '')}"

    if attack not in _FOR_ROOT or os.geteuid() == 0:
        assert await _succeeds(await started("none"), tmp_path, deed)
    for isolated in (False, True):
        assert not await _succeeds(await started("all"), tmp_path, deed, isolated=isolated)
    for layer in _STOPPED_BY[attack]:
        executor = await started(layer)
        if (await executor.examine()).layers[layer]:
            assert not await _succeeds(executor, tmp_path, deed), layer


@pytest.mark.parametrize("user", _USERS)
@pytest.mark.long
async def test_attacks_on_a_server_on_older_kernels_fail(searchable: Path, aims: dict[str, str], user: int) -> None:
    """Older versions of Landlock, and kernels without, do not stop all attacks.

    Root's jobs have users of their own, which are not in the groups of the server.
    """
    versions = [5, 3, 1, 0]  # the last, without Landlock, does not stop all attacks
    is_root = os.geteuid() == 0
    folder, private = searchable / "jobs", searchable / "private"
    attacks = {attack: aims.get(attack, "") for attack in _STOPPED_BY if user == 0 or attack not in _FOR_ROOT}
    attacks |= dict.fromkeys(("kill", "trace", "point", "point_connection"), "server")
    attacks |= {attack: str(private / "file") for attack in ("read", "write", "loosen", "redate", "touch", "link")}
    attacks |= dict.fromkeys(("list", "watch"), str(private))
    private.mkdir()
    folder.mkdir()
    (private / "file").write_bytes(b"private")
    for path, mode in ((private, 0o750), (private / "file", 0o640), (folder, 0o755)):
        path.chmod(mode)
        os.chown(path, user, _GROUP if is_root else -1)

    command = (sys.executable, "-m", "tests.support.executors.attacked_server", str(folder))
    server = await asyncio.create_subprocess_exec(
        *command,
        json.dumps(versions),
        json.dumps(attacks),
        stdout=subprocess.PIPE,
        user=user if is_root else None,
        group=user if is_root else None,
        extra_groups=(_GROUP,) if is_root else None,
    )
    output, _ = await server.communicate()

    assert server.returncode == 0
    possible = _BY_LANDLOCK | (set() if user == 0 else {"read", "list", "write"})  # it is absent
    for version, successes in zip(versions, json.loads(output), strict=True):
        succeeded = {attack for attack, success in successes.items() if success}
        assert succeeded == (set() if version else possible), version


@pytest.mark.parametrize("attack", ["run", "run_copy", "run_script"])
async def test_a_job_with_a_program_cannot_start_others(started: Starter, tmp_path: Path, attack: str) -> None:
    own = f"run {_PROGRAM} -v"
    other = f"{attack} {f'{_PROGRAM} -v' if attack == 'run_copy' else '/bin/true'}"  # jobs can read no others

    assert await _succeeds(await started("none"), tmp_path, other, kind="launcher")
    for layers in ("all", "landlock"):
        assert await _succeeds(await started(layers), tmp_path, own, kind="launcher")
        assert not await _succeeds(await started(layers), tmp_path, other, kind="launcher"), layers
    assert not await _succeeds(await started("all"), tmp_path, own)


async def test_programs_of_the_loader_stay_sandboxed(started: Starter, tmp_path: Path, aims: dict[str, str]) -> None:
    """Jobs need the loader to start programs. What they start through it has the job's restrictions."""
    command = f"load {_PROGRAM} -q -dBATCH -dNODISPLAY -dNOSAFER -c"
    deeds = (f"{command} ({aims['read']})(r)file quit", f"{command} ({aims['write']})(w)file quit")
    assert await _succeeds(await started("all"), tmp_path, f"{command} quit", kind="launcher")

    for deed in deeds:
        assert await _succeeds(await started("none"), tmp_path, deed, kind="launcher")
        assert not await _succeeds(await started("all"), tmp_path, deed, kind="launcher")
        assert not await _succeeds(await started("all"), tmp_path, deed)


@pytest.mark.parametrize("layers", ["none", "all"])
async def test_jobs_cannot_read_secrets(started: Starter, tmp_path: Path, aims: dict[str, str], layers: str) -> None:
    assert not await _succeeds(await started(layers), tmp_path, f"remember {aims['remember']}")


@pytest.mark.parametrize("layers", ["none", "all"])
async def test_a_job_inherits_no_open_folder(started: Starter, tmp_path: Path, layers: str) -> None:
    """The fork server keeps folders open for the Landlock rules."""
    assert not await _succeeds(await started(layers), tmp_path, "find_open_folder")


@pytest.mark.parametrize("layers", ["none", "all"])
async def test_no_file_exceeds_the_limit(started: Starter, tmp_path: Path, aims: dict[str, str], layers: str) -> None:
    executor, deed = await started(layers), f"fill {aims['fill']}"

    assert await _succeeds(executor, tmp_path, deed)
    assert not await _succeeds(executor, tmp_path, deed, TaskLimits(output=1 << 20))


@pytest.mark.parametrize("layers", ["none", "all"])
@pytest.mark.parametrize("deed", ["litter 4 400000", "litter 60 1", "burrow 30"])
async def test_no_folder_exceeds_the_disk_quota(started: Starter, tmp_path: Path, layers: str, deed: str) -> None:
    with pytest.raises(ConversionError, match="disk quota") as raised:
        await run_files(await started(layers), _job(tmp_path, deed), TaskLimits(scratch=1 << 20, files=100))

    assert (raised.value.code, raised.value.reason) == ("processing_failed", "engine_error")
    await run_files(await started(layers), _job(tmp_path, "fill 1000000"), TaskLimits(scratch=1 << 20, files=100))


async def test_the_number_of_threads_is_limited(started: Starter, tmp_path: Path) -> None:
    """Process IDs are a resource of the whole machine."""
    few, many = "swarm 50", "swarm 2000"

    assert await _succeeds(await started("none"), tmp_path, many)
    assert await _succeeds(await started("unbounded"), tmp_path, many)
    for isolated in (False, True):
        assert await _succeeds(await started("all"), tmp_path, few, isolated=isolated)
        assert not await _succeeds(await started("all"), tmp_path, many, isolated=isolated)


async def test_deleted_files_count_towards_the_quota(started: Starter, tmp_path: Path) -> None:
    deed, limits = "hide 4 400000", TaskLimits(scratch=1 << 20)

    assert await _succeeds(await started("none"), tmp_path, deed, limits)
    for layers in ("all", "seccomp"):
        with pytest.raises(ConversionError, match="disk quota"):
            await run_files(await started(layers), _job(tmp_path, deed), limits)


async def test_the_memory_of_all_processes_of_a_job_is_limited(started: Starter, tmp_path: Path) -> None:
    """Each process has an address space of its own, which is limited."""
    limits, memory = TaskLimits(memory=1 << 30), 400 << 20
    assert await _succeeds(await started("all"), tmp_path, f"multiply 1 {memory} 2", limits, kind="launcher")

    for layers in ("none", "all"):
        with pytest.raises(ConversionError, match="together") as raised:
            await _succeeds(await started(layers), tmp_path, f"multiply 6 {memory} 20", limits, kind="launcher")
        assert raised.value.reason == "out_of_memory"


@pytest.mark.parametrize("isolated", [False, True])
async def test_temporary_files_work(started: Starter, tmp_path: Path, isolated: bool) -> None:
    assert await _succeeds(await started("all"), tmp_path, "tidy_up", isolated=isolated)


async def test_a_false_size_is_detected(started: Starter, tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="size that differs"):
        await run_files(await started("all"), _job(tmp_path, "answer wrong_size"))

    assert not (tmp_path / "result.png").exists()


@pytest.mark.parametrize("kind", ["deep", "surrogate", "not_a_number"])
async def test_a_reply_that_is_no_json_is_a_crash(started: Starter, tmp_path: Path, kind: str) -> None:
    for isolated in (False, True):
        with pytest.raises(ConversionError, match="unreadable") as raised:
            await run_files(await started("all"), _job(tmp_path, f"answer {kind}", isolated=isolated))
        assert raised.value.reason == "worker_crashed"


@pytest.fixture
def searchable() -> Iterator[Path]:
    """A folder that every user can traverse, like the system's temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def _entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_the_folder_goes_with_its_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, searchable: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(searchable))
    monkeypatch.syspath_prepend(MISBEHAVING)
    executor = ObservedExecutor(1)
    await executor.start()
    assert len(_entries(searchable)) == 1
    for isolated in (False, True):
        await run_files(executor, _job(tmp_path, "fill 1000", isolated=isolated))
        with pytest.raises(ConversionError):
            await run_files(executor, _job(tmp_path, "hang", isolated=isolated), TaskLimits(seconds=0.5))

    await executor.close()

    for _ in range(100):  # large folders are removed in the background
        if not _entries(searchable):
            break
        await asyncio.sleep(0.1)
    assert not _entries(searchable)
