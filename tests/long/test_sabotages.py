"""A real server with each third-party plugin that does harm: it starts in time, names the plugin, and serves others."""

from pathlib import Path

import pytest

from benchmarks.processes import ConvertdServer, free_port
from tests.support import sabotages
from tests.support.command_line import run_command
from tests.support.requests import http
from tests.support.samples.generated import sample

pytestmark = pytest.mark.long


@pytest.mark.parametrize("what", [*sabotages.REFUSED, *sabotages.HARMLESS])
def test_the_server_starts_and_serves(what: str, tmp_path: Path) -> None:
    source, _ = sabotages.REFUSED.get(what, ("", ""))
    folder, imports = tmp_path / "modules", tmp_path / "imports"
    folder.mkdir()
    counted = f"open({str(imports)!r}, 'a').write('once ')\n"
    sabotages.install(folder, "odd", (source or sabotages.HARMLESS[what]).replace("\nfrom", f"\n{counted}from", 1))
    metrics = free_port()
    variables = {"PYTHONPATH": str(folder), "CONVERTD_METRICS_PORT": str(metrics), "CONVERTD_DATA_DIR": str(tmp_path)}
    account = run_command(tmp_path, "account", "create", "--email", "a@example.com", "--name", "Ann", **variables)
    with ConvertdServer(tmp_path, variables) as server:
        key = {"Authorization": f"Bearer {account.stdout.strip()}"}
        files, data = {"file": ("a.png", sample("png"))}, {"output_format": "jpeg"}
        answer = http.post(f"{server.api}/convert", headers=key, files=files, data=data, timeout=30)
        state, page = http.get(f"{server.url}/readyz").json(), http.get(f"{server.url}/status").text
        values = http.get(f"http://127.0.0.1:{metrics}/metrics").text
        document = http.get(f"{server.api}/openapi.json", timeout=30)
        log = server.log()
        assert server.stop() == 0

    assert answer.content[:3] == b"\xff\xd8\xff"
    assert document.status_code == 200
    up = 0.0 if source else 1.0
    assert f'convertd_plugin_up{{plugin="odd",version="1.0"}} {up}' in values
    if source:
        assert state == {"status": "degraded", "reasons": ["the plugin odd does not work"]}
        assert "does not work" in page
        assert "plugin 'odd' is left out: " in log
    else:
        assert state == {"status": "ok"}
        assert imports.read_text().split() == ["once"] * 3  # in the trial, in the server and in the fork server


def test_a_detection_that_fails_later_is_switched_off(tmp_path: Path) -> None:
    """It fails for files that are in no trial."""
    folder = tmp_path / "modules"
    folder.mkdir()
    source = sabotages.HARMLESS["import prints"].replace("pass", 'if content[:7] == b"trigger": raise IndexError')
    sabotages.install(folder, "odd", source)
    with ConvertdServer(tmp_path, {"PYTHONPATH": str(folder)}) as server:
        for _ in range(3):
            http.post(f"{server.url}/try/identify", files={"file": ("a", b"trigger")}, headers={"Origin": server.url})
        state = http.get(f"{server.url}/readyz").json()
        log = server.log()

    assert state == {"status": "degraded", "reasons": ["the plugin odd does not work"]}
    assert "plugin odd: the detection of odd0 is switched off: IndexError" in log
