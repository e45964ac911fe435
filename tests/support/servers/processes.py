"""`convertd serve` processes that tests can kill, and child processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_COMMAND = (str(Path(sys.executable).with_name("convertd")), "serve", "--port", "0")


@contextmanager
def serving(folder: Path, url: str, **settings: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Runs a server process. Yields it and its URL; `settings` are environment variables."""
    usual = {"CONVERTD_DATA_DIR": str(folder), "CONVERTD_DATABASE_URL": url, "CONVERTD_RATE_LIMIT_FREE": "100000"}
    environment = {**os.environ, **usual, "CONVERTD_METRICS_PORT": "0", **settings}
    with subprocess.Popen(_COMMAND, stderr=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stderr is not None
        told = next(found for line in server.stderr if (found := re.search(r"listening on (http://\S+?);", line)))
        drain = threading.Thread(target=server.stderr.read, daemon=True)
        drain.start()
        try:
            yield server, told[1]
        finally:
            server.kill()
            drain.join()


def child_processes(pid: int) -> list[int]:
    """The children of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
