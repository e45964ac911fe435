"""What a request calls in the server, and leaves: a feature must not add a stop that every request passes."""

import gc
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.processes import ConvertdServer
from tests.support.requests import http
from tests.support.samples.forms import FILE, FORM, TARGET, form
from tests.support.servers.in_process import Running, eventually
from tests.support.servers.load import create_accounts, sqlite_url
from web.handlers.conversions import Convert
from web.http.multipart import MultipartBody

_MODULES = 47
_FUNCTIONS = 235
_ATTEMPTS = 10

# Records the named functions of the project's packages that are called between SIGUSR1 and SIGUSR2.
_PROBE = """
import json, os, signal, sys, threading
from pathlib import Path
from engine.executor.pool import WorkerPool
from web.cli.main import main
from web.http.handler import BaseHandler

root, out = Path(main.__code__.co_filename).parents[2], Path(sys.argv.pop(1))
packages = tuple(f"{root / name}{os.sep}" for name in ("config", "engine", "plugins", "storage", "web"))
# What follows a response races with the signals, and so do templates that start.
finish = BaseHandler.on_finish.__code__
prepare = WorkerPool._prepare.__code__
calls = set()
is_finished = False

def is_called_by(code, frame):
    return frame is not None and (frame.f_code is code or is_called_by(code, frame.f_back))

def record(frame, event, argument):
    global is_finished
    code = frame.f_code
    is_finished = is_finished or code is finish
    if event != "call" or code.co_name.startswith("<") or is_finished or is_called_by(prepare, frame):
        return
    if code.co_filename.startswith(packages):
        calls.add((code.co_filename, code.co_qualname))

def begin(*_):
    global is_finished
    is_finished = False
    calls.clear()
    threading.setprofile(record)
    sys.setprofile(record)

def end(*_):
    sys.setprofile(None)
    part = out.with_suffix(".part")
    part.write_text(json.dumps(sorted(calls)))
    part.rename(out)

threading.setprofile(record)
signal.signal(signal.SIGUSR1, begin)
signal.signal(signal.SIGUSR2, end)
main()
"""


class _ProfiledServer(ConvertdServer):
    """A server that writes the functions of a request to the file `out` in its folder."""

    @property
    def command(self) -> Sequence[str]:
        _, *arguments = super().command
        return sys.executable, "-c", _PROBE, str(self.folder / "out"), *arguments

    def trace(self, key: str) -> list[tuple[str, str]]:
        """The modules and names of the functions that a conversion calls."""
        out = self.folder / "out"
        out.unlink(missing_ok=True)
        headers = {**FORM, "Authorization": f"Bearer {key}"}
        self.process.send_signal(signal.SIGUSR1)
        assert http.post(f"{self.api}/convert", content=form(FILE, TARGET), headers=headers).status_code == 200
        self.process.send_signal(signal.SIGUSR2)
        assert eventually(out.exists)
        return [(module, function) for module, function in json.loads(out.read_text())]


def test_a_conversion_passes_few_modules_and_functions(tmp_path: Path) -> None:
    (key,) = create_accounts(sqlite_url(tmp_path), 1)
    with _ProfiledServer(tmp_path) as server:
        traces = [{*server.trace(key)} for _ in range(_ATTEMPTS)]

    passed = set.intersection(*traces)  # without what is periodic, or only done on a busy machine
    assert len({module for module, _ in passed}) <= _MODULES
    assert len(passed) <= _FUNCTIONS


def test_a_conversion_leaves_nothing_to_the_garbage_collector(server: Running) -> None:
    def objects() -> dict[int, object]:
        return {id(one): one for one in gc.get_objects() if type(one) in (Convert, MultipartBody)}

    gc.collect()
    others = objects()  # Servers of other tests in this process may still end requests.
    gc.disable()
    try:
        headers = {**FORM, **server.auth}
        assert http.post(f"{server.api}/convert", content=form(FILE, TARGET), headers=headers).status_code == 200
        assert eventually(lambda: not objects().keys() - others.keys())
    finally:
        gc.enable()
