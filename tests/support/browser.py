"""A browser without a window: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, sync_playwright

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium, without a profile."""
    # To open a page takes the shell a quarter of the time: it has no windows to draw.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert program is not None, "Chromium is not installed here: sh config/setup.sh test"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS])
        yield browser
        browser.close()


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with the page for those who use it by keyboard or screen reader."""
    # The policy of the pages lets no script in; what the debugger evaluates is not asked.
    page.evaluate(_AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']}).then(found => found.violations)")
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]
