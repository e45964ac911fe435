"""Converts files under the first seccomp filter, and tells which system calls it refused. Runs as a program, too.

Arguments: a JSON list of conversions, each with the source's format or the path of a file, and the target's format. The
output is an object of the refused calls, by name with the command of a call that has commands, and for each the
conversions that made it.
"""

import ctypes
import fcntl
import json
import os
import select
import socket
import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import suppress
from errno import ENOSYS
from pathlib import Path
from threading import Event, Thread

from engine import ConversionError, pipeline, verification
from engine.executor import preload
from engine.registry import load_registry
from engine.sandbox import privileges, seccomp
from tests.support.samples.generated import sample

EXPECTED_REFUSALS = {
    "clone3",  # for threads the C library then uses clone
    "fcntl 0x6",  # fontconfig locks its cache
    "setpriority",  # x265 lowers the priority of its threads
}
"""Calls that codecs make and that the sandbox refuses, without effect on the result."""

_RECEIVE, _ANSWER = 0xC0502100, 0xC0182101  # SECCOMP_IOCTL_NOTIF_RECV and SECCOMP_IOCTL_NOTIF_SEND
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # identifier, process, flags, call, architecture, address and arguments
_RESPONSE = struct.Struct("=QqiI")  # identifier, value, negative error and flags
_NATIVE = 0  # libseccomp's name of this architecture
_COMMANDS = {"ioctl": 1, "fcntl": 1, "prctl": 0, "arch_prctl": 0}  # the argument that is the command


def _convert_all(connection: socket.socket, conversions: list[tuple[str, str]]) -> None:
    """Sends the descriptor of the notifications, then the name of each conversion before it runs."""
    preload.preload()
    listeners: list[int] = []
    restricted, observed = Event(), Event()

    def send() -> None:  # in a thread without the filter, which shares descriptors with this one
        restricted.wait()
        socket.send_fds(connection, [b"listener"], listeners)
        observed.set()

    Thread(target=send).start()
    privileges.set_no_new_privs()
    listeners.append(seccomp.restrict_and_notify())
    restricted.set()
    observed.wait()
    for source, target in conversions:
        os.write(connection.fileno(), f"{Path(source).name} -> {target}".encode())
        with suppress(ConversionError):
            _convert(source, target)


def _convert(source: str, target: str) -> None:
    registry = load_registry()
    is_file = "/" in source
    data = Path(source).read_bytes() if is_file else sample(source)
    plan = registry.plan([registry.identify(Path(source)) if is_file else registry.formats[source]], target)
    verification.verify(registry, plan, pipeline.run(plan, [data]).file)


def _refused_calls(connection: socket.socket) -> dict[str, set[str]]:
    """Refuses all calls as the filter would, until the connection is closed. Returns them with the conversions."""
    refused: dict[str, set[str]] = defaultdict(set)
    _, (listener,), _, _ = socket.recv_fds(connection, 1000, 1)
    conversion = b""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(connection, select.POLLIN)
    while True:
        ready = dict(poll.poll())
        if connection.fileno() in ready:
            conversion = connection.recv(1000)
            if not conversion:
                return refused
        elif ready[listener] & select.POLLIN:
            buffer = bytearray(_NOTIFICATION.size)
            with suppress(FileNotFoundError):  # the caller has been killed
                fcntl.ioctl(listener, _RECEIVE, buffer)
                identifier, _, _, number, _, _, *arguments = _NOTIFICATION.unpack(buffer)
                refused[_described(number, arguments)].add(conversion.decode())
                fcntl.ioctl(listener, _ANSWER, _RESPONSE.pack(identifier, 0, -ENOSYS, 0))


def _described(number: int, arguments: list[int]) -> str:
    resolve = seccomp.libseccomp().seccomp_syscall_resolve_num_arch
    resolve.restype = ctypes.c_char_p
    name = (resolve(_NATIVE, number) or b"%d" % number).decode()
    return f"{name} {arguments[_COMMANDS[name]] & 0xFFFFFFFF:#x}" if name in _COMMANDS else name


def main(conversions: list[tuple[str, str]]) -> None:
    """Prints the refused calls of conversions in a forked process. Exits with an error if it ends with one."""
    connection, remote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    child = os.fork()
    if child == 0:
        connection.close()
        _convert_all(remote, conversions)
        os._exit(0)
    remote.close()
    refused = _refused_calls(connection)
    if status := os.waitpid(child, 0)[1]:
        sys.exit(f"The process of the conversions ended with {os.waitstatus_to_exitcode(status)}.")
    print(json.dumps({call: sorted(names) for call, names in sorted(refused.items())}))


def refused_calls(conversions: Sequence[tuple[str, str]]) -> dict[str, list[str]]:
    """Converts files in another process. Returns its refused calls, and the conversions that made them.

    Each conversion has the source's format, for a generated file, or the path of a file, and the target's format.
    """
    command = [sys.executable, "-B", "-m", "tests.support.executors.refused_calls"]  # bytecode would be renamed
    sent = json.dumps(conversions).encode()
    output = subprocess.run(command, input=sent, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
    return dict(json.loads(output))


if __name__ == "__main__":
    main(json.load(sys.stdin))
