"""Attacks of code that runs in a job's process, for example through a vulnerable codec."""

import ctypes
import errno
import fcntl
import json
import os
import signal
import socket
import stat
import struct
import threading
import time
from contextlib import suppress
from pathlib import Path

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
SUCCEEDED, REFUSED = "red", "green"  # colors of the decoded image
_PTRACE_SEIZE = 0x4206
_CONNECTION = 3  # the descriptor of the connection to the server
_FIOSETOWN, _FIOASYNC = 0x8901, 0x5452
_FS_IOC_RESVSP = 0x40305828
_KEEP_SIZE = 1


def is_attack(name: str) -> bool:
    """Whether this module has an attack of that name: the function with the name after an underscore."""
    return f"_{name}" in globals()


def outcome(attack: str, argument: str) -> str:
    """Runs an attack. Returns the color for its outcome. `argument` is for example a path, a process id or a port."""
    try:
        globals()[f"_{attack}"](argument)
    except OSError:
        return REFUSED
    return SUCCEEDED


def _connect(port: str) -> None:
    socket.create_connection(("127.0.0.1", int(port)), timeout=2).close()


def _connect_abstract(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(f"\0{name}")


def _make_socket(_argument: str) -> None:
    socket.socket(socket.AF_UNIX).close()


def _run(command: str) -> None:
    """Runs a program in a child process, so that this process still replies."""
    program, *arguments = command.split()
    if os.waitstatus_to_exitcode(os.waitpid(os.posix_spawn(program, [program, *arguments], {}), 0)[1]):
        raise PermissionError


def _run_copy(command: str) -> None:
    """Runs a program that the process has written itself."""
    program, _, arguments = command.partition(" ")
    Path("copy").write_bytes(Path(program).read_bytes())
    Path("copy").chmod(0o700)
    _run(f"./copy {arguments}")


def _run_script(program: str) -> None:
    Path("script").write_text(f"#!{program}\n")
    Path("script").chmod(0o700)
    _run("./script")


def _load(command: str) -> None:
    """Runs a program through the dynamic loader instead of executing it directly."""
    loader = next(path for path in LOADERS if Path(path).exists())
    _run(f"{loader} {command}")


def _fork(_argument: str) -> None:
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)


def _read(path: str) -> None:
    Path(path).read_bytes()


_read_system = _read_shared = _read


def _list(path: str) -> None:
    list(Path(path).iterdir())


_list_system = _list


def _write(path: str) -> None:
    Path(path).write_bytes(b"mine")


def _kill(process: str) -> None:
    os.kill(int(process), signal.SIGCONT)  # needs the same permission as SIGKILL, without effect on the tests


def _trace(process: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.ptrace(ctypes.c_long(_PTRACE_SEIZE), int(process), None, None) < 0:
        raise OSError(ctypes.get_errno(), "refused")


def _link(path: str) -> None:
    Path("link").symlink_to(path)


def _pipe(_argument: str) -> None:
    os.mkfifo("pipe")


def _change_root(_argument: str) -> None:
    os.chroot("/")


def _spy(_argument: str) -> None:
    """Looks at this process from another of the same user. The kernel checks it as for reading its memory."""
    if (child := os.fork()) == 0:
        try:
            Path(f"/proc/{os.getppid()}/maps").read_bytes()
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
        raise PermissionError


def _remember(secret: str) -> None:
    """Searches for a secret in the current and the initial environment."""
    held = [*os.environ.values(), Path("/proc/self/environ").read_text()]
    if not any(secret in text for text in held):
        raise PermissionError


def _become_root(_argument: str) -> None:
    os.setresuid(0, 0, 0)


def _fill(size: str) -> None:
    Path("big").write_bytes(bytes(int(size)))


def _litter(argument: str) -> None:
    """Writes `count` files of `size` bytes in as many folders, then waits to be stopped."""
    count, size = map(int, argument.split())
    for number in range(count):
        folder = Path(f"folder{number}")
        folder.mkdir()
        (folder / "file").write_bytes(bytes(size))
    time.sleep(5)


def _burrow(depth: str) -> None:
    """Creates nested folders whose path exceeds the limit of the system."""
    for _ in range(int(depth)):
        Path("x" * 200).mkdir()
        os.chdir("x" * 200)
    time.sleep(5)


def _swarm(count: str) -> None:
    """Starts `count` threads that exist at the same time."""
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
    """Writes `count` open files of `size` bytes that are in no folder, then waits to be stopped."""
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
    if watch < 0 or libc.inotify_add_watch(watch, os.fsencode(path), 0x100) < 0:  # IN_CREATE
        raise OSError(ctypes.get_errno(), "refused")
    os.close(watch)


def _point(process: str) -> None:
    """Sets another process as the owner of a pipe, to which the kernel then sends signals."""
    reader, writer = os.pipe()
    try:
        fcntl.fcntl(reader, fcntl.F_SETOWN, int(process))
    finally:
        os.close(reader)
        os.close(writer)


def _point_connection(process: str) -> None:
    """Makes the kernel send SIGIO to another process when it uses the connection that it shares with this one."""
    connection = socket.socket(fileno=os.dup(_CONNECTION))
    with connection:
        fcntl.ioctl(connection, _FIOSETOWN, struct.pack("=i", int(process)))
        fcntl.ioctl(connection, _FIOASYNC, struct.pack("=i", 1))


def _allocate(size: str) -> None:
    """Takes disk space without writing, beyond the limit on the size of a file, then waits to be stopped."""
    with Path("allocated").open("wb") as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fallocate(file.fileno(), _KEEP_SIZE, ctypes.c_long(0), ctypes.c_long(int(size))):
            raise OSError(ctypes.get_errno(), "refused")
    time.sleep(2)


def _reserve(size: str) -> None:
    """Takes disk space by an ioctl, as `_allocate` does."""
    with Path("reserved").open("wb") as file:
        fcntl.ioctl(file, _FS_IOC_RESVSP, struct.pack("@hhqqiI16x", 0, 0, 0, int(size), 0, 0))
    time.sleep(2)


def _lock(count: str) -> None:
    """Takes as many locks of single bytes, which use memory of the kernel."""
    with Path("locked").open("wb") as file:
        for number in range(int(count)):
            fcntl.lockf(file, fcntl.LOCK_EX, 1, 2 * number)


def _multiply(argument: str) -> None:
    """Starts `count` processes that use `size` bytes each for `seconds`, and waits as long."""
    count, size, seconds = map(int, argument.split())
    for _ in range(count):
        if os.fork() == 0:
            memory = bytearray(b"x") * size
            time.sleep(seconds)
            os._exit(len(memory) & 1)
    time.sleep(seconds)


def _displace(_argument: str) -> None:
    """Replaces a file by renaming another, so that the first is in no folder."""
    Path("one").touch()
    Path("other").touch()
    Path("one").rename("other")


def _keep_in_memory(_argument: str) -> None:
    os.close(os.memfd_create("hidden"))


def _find_open_folder(_argument: str) -> None:
    """Searches for an inherited open folder, through which others could be reached."""
    for descriptor in range(100):
        with suppress(OSError):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return
    raise PermissionError


def _try_all(attacks: str) -> None:
    """Runs several attacks, one a line. Refused if all of them are."""
    for attack in attacks.splitlines():
        name, _, argument = attack.partition(" ")
        with suppress(OSError):
            globals()[f"_{name}"](argument)
            return
    raise PermissionError


def _answer(kind: str) -> None:
    """Replies in place of the worker, with a wrong size or values that are no JSON."""
    outcome: dict[str, object] = {"output_format": "png", "processed_size": 1_000_000, "warnings": []}
    result = {"outcome": outcome, "trace": [], "check_seconds": 0, "peak_memory": 0}
    if kind == "surrogate":
        outcome["warnings"] = [{"code": "code", "message": "\ud800"}]
    if kind == "not_a_number":
        told = {"kind": "CorruptInput", "message": "No.", "reason": None, "param": None, "details": {"x": float("nan")}}
    reply = json.dumps({"error": told} if kind == "not_a_number" else {"result": result})
    os.write(_CONNECTION, ("[" * 30_000 if kind == "deep" else reply).encode())
    os._exit(0)
