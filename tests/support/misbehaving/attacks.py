"""What hostile code would try once a broken codec has let it into a job's process."""

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
SUCCEEDED, REFUSED = "red", "green"  # the colours that tell the outcome
_PTRACE_SEIZE = 0x4206


def outcome(attack: str, argument: str) -> str:
    """The colour of the outcome; `argument` is a path, a process id, a port."""
    try:
        ATTACKS[attack](argument)
    except OSError:
        return REFUSED
    return SUCCEEDED


def _connect(port: str) -> None:
    socket.create_connection(("127.0.0.1", int(port)), timeout=2).close()


def _make_socket(_argument: str) -> None:
    socket.socket(socket.AF_UNIX).close()


def _run(command: str) -> None:
    """Only in a child, so that the answer is still given."""
    program, *arguments = command.split()
    if os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(program, [program, *arguments], {}), 0)[1]):
        raise PermissionError


def _run_copy(program: str) -> None:
    """A program that the process brings along, which a codec that was broken into could write."""
    Path("copy").write_bytes(Path(program).read_bytes())
    Path("copy").chmod(0o700)
    _run("./copy")


def _run_script(program: str) -> None:
    Path("script").write_text(f"#!{program}\n")
    Path("script").chmod(0o700)
    _run("./script")


def _load(command: str) -> None:
    """A program that is not run but given to the loader, which starts all programs."""
    loader = next(path for path in LOADERS if Path(path).exists())
    _run(f"{loader} {command}")


def _fork(_argument: str) -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _read(path: str) -> None:
    Path(path).read_bytes()


def _list(path: str) -> None:
    list(Path(path).iterdir())


def _write(path: str) -> None:
    Path(path).write_bytes(b"mine")


def _kill(process: str) -> None:
    os.kill(int(process), signal.SIGCONT)  # as allowed or refused as SIGKILL is, and harmless to the tests


def _trace(process: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(_PTRACE_SEIZE), int(process), None, None) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _link(path: str) -> None:
    Path("link").symlink_to(path)


def _pipe(_argument: str) -> None:
    os.mkfifo("pipe")


def _remember(secret: str) -> None:
    """The secret, wherever the process could know it from: its environment now, and as it was at its start."""
    held = [*os.environ.values(), Path("/proc/self/environ").read_text()]
    if not any(secret in text for text in held):
        raise PermissionError


def _become_root(_argument: str) -> None:
    os.setresuid(0, 0, 0)


def _fill(size: str) -> None:
    Path("big").write_bytes(bytes(int(size)))


def _litter(argument: str) -> None:
    """So many files of that many bytes, and as many folders around them; then time for somebody to notice."""
    count, size = map(int, argument.split())
    for number in range(count):
        folder = Path(f"folder{number}")
        folder.mkdir()
        (folder / "file").write_bytes(bytes(size))
    time.sleep(5)


def _burrow(depth: str) -> None:
    """Folders so deep that their path is too long for the system."""
    for _ in range(int(depth)):
        Path("x" * 200).mkdir()
        os.chdir("x" * 200)
    time.sleep(5)


def _swarm(count: str) -> None:
    """So many threads, all there at once."""
    threading.stack_size(64 << 10)
    enough = threading.Event()
    try:
        for _ in range(int(count)):
            threading.Thread(target=enough.wait).start()
    except RuntimeError:
        raise OSError(errno.EAGAIN, "no more threads") from None
    finally:
        enough.set()


def _hide(argument: str) -> None:
    """So many files of that many bytes, open and in no folder; then time for somebody to notice."""
    count, size = map(int, argument.split())
    for number in range(count):
        hidden = os.open(f"file{number}", os.O_RDWR | os.O_CREAT)
        Path(f"file{number}").unlink()
        os.write(hidden, bytes(size))
    time.sleep(2)


def _loosen(path: str) -> None:
    before = Path(path).stat().st_mode
    Path(path).chmod(before ^ stat.S_IXUSR)
    if Path(path).stat().st_mode == before:
        raise PermissionError


def _redate(path: str) -> None:
    before = Path(path).stat().st_mtime_ns
    os.utime(path, ns=(0, before + 1))
    if Path(path).stat().st_mtime_ns == before:
        raise PermissionError


def _touch(path: str) -> None:
    os.utime(path)


def _watch(path: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    watch = libc.inotify_init1(0)
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(path), 0x100) < 0:  # that files are made
        raise OSError(ctypes.get_errno(), "refused")
    os.close(watch)


def _point(process: str) -> None:
    """A file that is ready tells its owner, by any signal."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(reader, fcntl.F_SETOWN, int(process))
    finally:
        os.close(reader)
        os.close(writer)


def _displace(_argument: str) -> None:
    """A file whose place another takes is in no folder either."""
    Path("one").touch()
    Path("other").touch()
    Path("one").rename("other")


def _keep_in_memory(_argument: str) -> None:
    os.close(os.memfd_create("hidden"))


def _find_open_folder(_argument: str) -> None:
    """A folder that the process has inherited open, through which it could get at others."""
    for descriptor in range(100):
        with suppress(OSError):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return
    raise PermissionError


def _answer(_argument: str) -> None:
    """Answers in the worker's place, with a size that it has not written."""
    told = {"size": 1_000_000, "trace": [], "warnings": [], "input_pages": [], "pages": None}
    lie = {"result": {**told, "check_seconds": 0, "peak_memory": 0}}
    for descriptor in range(3, 100):
        with suppress(OSError):
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                os.write(descriptor, json.dumps(lie).encode())
                os._exit(0)


ATTACKS: Mapping[str, Callable[[str], None]] = {
    "connect": _connect,
    "make_socket": _make_socket,
    "run": _run,
    "run_copy": _run_copy,
    "run_script": _run_script,
    "load": _load,
    "fork": _fork,
    "read": _read,
    "list": _list,
    "write": _write,
    "kill": _kill,
    "trace": _trace,
    "link": _link,
    "pipe": _pipe,
    "remember": _remember,
    "become_root": _become_root,
    "fill": _fill,
    "find_open_folder": _find_open_folder,
    "answer": _answer,
    "burrow": _burrow,
    "swarm": _swarm,
    "hide": _hide,
    "displace": _displace,
    "loosen": _loosen,
    "redate": _redate,
    "touch": _touch,
    "watch": _watch,
    "point": _point,
    "keep_in_memory": _keep_in_memory,
    "litter": _litter,
}
