"""Chromium without windows: its process, which is started ahead and kept for the pages of one account."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine import Requirement, WorkerCrashed, lazy_imports
from plugins._browser.devtools import DevTools

with lazy_imports():
    from plugins._browser import fonts

_READING, _WRITING = 3, 4  # the descriptors from which Chromium reads commands, and to which it writes
_COPIES = 10  # above both
_MAX_DESCRIPTORS = 256  # the limit on open files of a task


def _find_program() -> tuple[str, ...]:
    """The path of the program itself, which Debian starts by a script."""
    folders = ("/usr/lib/chromium", "/usr/lib64/chromium-browser", "/usr/lib/chromium-browser")
    names = ("chromium-headless-shell", "headless_shell")
    paths = (Path(folder, name) for folder in folders for name in names)
    return tuple(str(path) for path in paths if os.access(path, os.X_OK))[:1]


PROGRAMS = _find_program()
"""The path of Chromium's headless shell; empty if it is not installed."""

CHROMIUM = Requirement(
    "Chromium",
    "pages of HTML as a browser shows them",
    "sh config/setup.sh browser",
    present=bool(PROGRAMS),
)
_FLAGS = """
--remote-debugging-pipe --no-sandbox --no-zygote --in-process-gpu --disable-gpu --disable-gpu-watchdog
--enable-unsafe-swiftshader --disable-dev-shm-usage --disable-site-isolation-trials --block-new-web-contents
--enable-features=NetworkServiceInProcess2
--disable-features=IsolateOrigins,site-per-process,BackForwardCache,HttpsUpgrades,LocalNetworkAccessChecks,PaintHolding
--disable-background-networking --disable-breakpad --disable-component-update --disable-default-apps
--disable-extensions --disable-notifications --disable-sync --deny-permission-prompts
--force-color-profile=srgb --hide-scrollbars --js-flags=--max-old-space-size=1024 --mute-audio --no-first-run --no-pings
--proxy-server=http://127.0.0.1:9 --proxy-bypass-list=<-loopback>
--unsafely-treat-insecure-origin-as-secure=http://archive.invalid
"""
# Chromium's own sandbox needs namespaces, which the one around it refuses; the zygote needs /proc. A proxy that does
# not exist is one more obstacle. Files of an archive seem to come from a secure server, as they do from a disk.


class Chromium:
    """A running browser. Raises WorkerCrashed if it does not start."""

    def __init__(self) -> None:
        reading, self._to_browser = os.pipe()
        self._from_browser, writing = os.pipe()
        self._folder = tempfile.mkdtemp(prefix="browser-")
        fonts.install(Path(self._folder, ".fonts"))
        try:
            self._pid = _start(self._folder, reading, writing)
        except OSError as error:
            raise WorkerCrashed("The browser does not start.") from error
        finally:
            os.close(reading)
            os.close(writing)
        self.tools = DevTools(self._from_browser, self._to_browser)
        self.user_agent = self.tools.call("Browser.getVersion")["userAgent"].replace("Headless", "")
        # Ahead, as it takes longer than most pages. A later one would not start while an idle worker is stopped.
        self._first_tab: tuple[str, int] | None = self._open_tab()

    @contextmanager
    def tab(self) -> Iterator[tuple[str, str]]:
        """The identifiers of a tab for one page and of its session. It shares nothing with others.

        After an error in the block, the browser is of no use.
        """
        context, number = self._first_tab or self._open_tab()
        self._first_tab = None
        target = self.tools.wait_for(number)["targetId"]
        session = self.tools.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        yield target, session
        self.tools.call("Target.disposeBrowserContext", browserContextId=context)

    def _open_tab(self) -> tuple[str, int]:
        """Begins to open a tab. Returns the identifier of its context, and the number of the command."""
        context = self.tools.call("Target.createBrowserContext", disposeOnDetach=True)["browserContextId"]
        self.tools.call("Browser.setDownloadBehavior", behavior="deny", browserContextId=context)
        return context, self.tools.ask("Target.createTarget", url="about:blank", browserContextId=context)

    def close(self) -> None:
        """Closes the pipes, upon which the browser ends, and waits for it; the sandbox allows no signals."""
        os.close(self._to_browser)
        os.close(self._from_browser)
        os.waitpid(self._pid, 0)
        shutil.rmtree(self._folder, ignore_errors=True)


def _start(folder: str, reading: int, writing: int) -> int:
    """Starts the browser with these descriptors and no others. Returns its process ID. Raises OSError."""
    command = [*PROGRAMS, f"--browser-subprocess-path={PROGRAMS[0]}", f"--user-data-dir={folder}", *_FLAGS.split()]
    # Copies, as one of the pipes may have the number that the other one gets.
    sources = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _COPIES) for one in (reading, writing)]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1, 2)
    ]
    actions += [(os.POSIX_SPAWN_DUP2, *pair) for pair in zip(sources, (_READING, _WRITING), strict=True)]
    actions += [(os.POSIX_SPAWN_CLOSE, number) for number in range(_WRITING + 1, _MAX_DESCRIPTORS)]
    variables = {"HOME": folder, "TMPDIR": folder, "XDG_CONFIG_HOME": folder, "LANG": "C.UTF-8"}
    try:
        return os.posix_spawn(PROGRAMS[0], command, variables, file_actions=actions)
    finally:
        for one in sources:
            os.close(one)


def start_program() -> Chromium:
    """Starts the browser that a process keeps for its tasks. Raises WorkerCrashed."""
    return Chromium()
