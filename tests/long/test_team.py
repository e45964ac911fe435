"""The commands of config/TEAM.md make a fresh folder a server for a team, as printed, in less than ten minutes."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from PIL import Image

from benchmarks.processes import free_port
from tests.support.readme import read

pytestmark = pytest.mark.long
_DOCUMENT = read("config/TEAM.md")
_SECTIONS = ("Settings", "Start", "Invite the team", "Convert")
_LIMIT = 100 << 20  # bytes
_PAGES = ("/", "/docs", "/docs/limits", "/docs/account", "/docs/errors", "/register", "/status", "/dashboard")
_SOLD = re.compile(r"€|\bEUR\b|\bBuy\b|per conversion|creditsPurchase")


def test_every_block_is_executed() -> None:
    assert [block for section in _SECTIONS for block in _DOCUMENT.section(section).blocks("sh")] == _DOCUMENT.blocks(
        "sh"
    )


def test_a_fresh_server_becomes_that_of_a_team(tmp_path: Path) -> None:
    (tmp_path / ".venv").mkdir()
    (tmp_path / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    port = free_port()
    known = {name: value for name, value in os.environ.items() if not name.startswith("CONVERTD_")}
    known |= {"CONVERTD_METRICS_PORT": "0"}
    site = f"http://localhost:{port}"

    def run(section: str) -> str:
        (block,) = _DOCUMENT.section(section).blocks("sh")
        commands = block.replace("localhost:8000", f"localhost:{port}").replace("serve >", f"serve --port {port} >")
        done = subprocess.run(
            ["sh", "-euc", commands], cwd=tmp_path, env=known, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    large = tmp_path / "large.bmp"
    Image.effect_noise((5900, 5900), 40).convert("RGB").save(large)
    assert 0.99 * _LIMIT < large.stat().st_size <= _LIMIT
    started = time.monotonic()
    run("Settings")
    run("Start")
    try:
        run("Invite the team")
        links = (tmp_path / "links.txt").read_text().split()
        assert len(set(links)) == 5
        for link in links:
            _use(site, link, large)
        log = run("Convert")
        with Image.open(tmp_path / "large.jpeg") as converted:
            assert converted.size == (5900, 5900)
        assert {f"{name}@team.example" in log for name in ("ann", "bob", "cleo", "dan", "eve")} == {True}
        seconds = time.monotonic() - started
        print(f"five colleagues signed in and converted 100 MB files within {seconds:.0f} s")
        assert seconds < 600
    finally:
        os.kill(int((tmp_path / "convertd.pid").read_text()), signal.SIGTERM)


def _use(site: str, link: str, large: Path) -> None:
    """Signs a colleague in with the link, who makes an API key, converts a large file, and sees no prices."""
    with httpx.Client(base_url=site, headers={"Origin": site}, follow_redirects=True, timeout=120) as browser:
        page, token = link.split("#token=")
        assert page == f"{site}/dashboard/sign-in-link"
        assert "Sign out" in browser.post("/dashboard/sign-in-link", data={"token": token}).text
        assert "Sign out" not in httpx.post(page, data={"token": token}, headers={"Origin": site}).text
        found = re.search(r'value="(cvd_live_\w+)"', browser.post("/dashboard/keys", data={"name": "mine"}).text)
        assert found is not None
        with large.open("rb") as file:
            done = browser.post(
                "/api/v1/convert",
                files={"file": ("large.bmp", file)},
                data={"output_format": "jpeg"},
                headers={"Authorization": f"Bearer {found[1]}"},
            )
        assert (done.status_code, done.headers["X-Credits-Remaining"]) == (200, "50"), done.text[:300]
        for path in (*_PAGES, "/api/v1/openapi.json"):
            text = re.sub(r"<script.*?</script>", "", browser.get(path).text, flags=re.DOTALL)
            assert _SOLD.search(text) is None, (path, _SOLD.search(text))
