"""A headless browser: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, expect, sync_playwright

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium, without a profile."""
    # The headless shell opens pages in a quarter of the time.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert program is not None, "Chromium is not installed here: sh config/setup.sh test"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS])
        yield browser
        browser.close()


def violations(page: Page, *rules: str) -> list[str]:
    """Violations of axe-core's accessibility rules, all or only the named ones."""
    # The content security policy of the pages allows no inline script, but does not apply to the debugger.
    page.evaluate(_AXE.read_text())
    options: dict[str, object] = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    found = page.evaluate("options => axe.run(document, options).then(found => found.violations)", options)
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def sign_in(page: Page, key: str) -> None:
    """Opens the dashboard of the key's account."""
    page.goto("/dashboard")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#credits")).to_be_visible()
