"""What a server unpickles: two errors of a scheduler, and nothing else.

Dask's client unpickles types, errors, warnings and marked values of messages whatever its deserializers are, so that a
worker or a scheduler whose code is an attacker's could run code in a server.
"""

import sys
from collections.abc import Iterable
from typing import Any

from distributed.protocol.serialize import families, register_serialization_family

_READABLE = frozenset(
    {("distributed.scheduler", "NoValidWorkerError"), ("distributed.scheduler", "NoWorkerError")}
)  # their arguments are names and numbers; the third error of a scheduler, KilledWorker, has an object


def refuse_pickles() -> None:
    """Makes this process refuse to unpickle any class or function but these errors, until it ends.

    `pickle.loads` raises TypeError, upon which Dask goes on without the value.
    """
    sys.addaudithook(_check)
    for name in ("dask", "pickle"):  # a client that fails to read one of these reads no further message
        dumps, _, _ = families[name]
        register_serialization_family(name, dumps, _join)


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "pickle.find_class" and arguments not in _READABLE:
        raise TypeError(f"a server does not unpickle {arguments}")


def _join(_header: object, frames: Iterable[bytes]) -> bytes:
    return b"".join(frames)
