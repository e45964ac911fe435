"""The end of a process whose event loop stands still, so that what keeps the server running starts it again."""

import asyncio
import faulthandler
import os
import socket
from contextlib import suppress

SILENCE = 5.0
"""Seconds for which the loop may stand still. Those in which the machine is suspended do not count."""

_INTERVAL = 1.0  # seconds


async def keep_alive() -> None:
    """Until cancelled, ends the process with exit code 1 when the loop has stood still for some seconds.

    What each thread does is written to standard error before. The timer needs no lock of the interpreter, which code
    that does not return can hold: then no other thread runs, and no handler of a signal. systemd gets a sign of life.
    """
    try:
        while True:
            faulthandler.dump_traceback_later(SILENCE, exit=True)
            _notify_systemd()
            await asyncio.sleep(_INTERVAL)
    finally:
        faulthandler.cancel_dump_traceback_later()


def end_process() -> None:
    """Ends the process with exit code 1, after writing what each thread does to standard error."""
    faulthandler.dump_traceback()
    os._exit(1)


def _notify_systemd() -> None:
    """Sends the sign of life that `WatchdogSec=` waits for, if systemd runs this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address is None:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notified:
        notified.sendto(b"WATCHDOG=1", "\0" + address[1:] if address.startswith("@") else address)
