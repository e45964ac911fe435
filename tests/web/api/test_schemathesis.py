"""Schemathesis: valid and invalid requests generated from the OpenAPI document, with all its checks."""

import os
import subprocess
import sys
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import free_port
from tests.support.requests import http
from tests.support.requests.contract import published
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Servers

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[3]
_PLENTY = 10_000_000  # requests a minute
# A number of requests to every operation does not depend on the load of the machine, as a duration does.
_EXAMPLES_PER_SECOND = 0.4
_SEED = "1"  # the same requests in each quick run; longer runs search for others
_QUICK = 5  # seconds
_QUICK_PHASES = "examples,fuzzing,stateful"  # The limits of each value take longest: --long.


def test_nothing_is_found(
    servers: Servers, data_dir: Path, tmp_path: Path, fuzz_seconds: float, pytestconfig: pytest.Config
) -> None:
    config = tmp_path / "schemathesis.toml"
    hooks = _ROOT / "tests" / "support" / "requests" / "schemathesis_hooks.py"
    config.write_text(f'hooks = "{hooks}"\n')
    for name in ("jpeg", "pdf", "png"):
        (tmp_path / f"sample.{name}").write_bytes(sample(name))
    settings: dict[str, Any] = {"rate_limit_paid": _PLENTY, "rate_limit_anonymous": _PLENTY, "simulated_checkout": True}
    with servers.running(data_dir, port=free_port(), **settings) as server:
        (key,) = http.get(f"{server.api}/account/keys", headers=server.auth).json()["data"]["keys"]
        found = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", config),
                *("run", f"{server.api}/openapi.json", "--checks", "all", "--continue-on-failure"),
                *("--max-examples", str(ceil(fuzz_seconds * _EXAMPLES_PER_SECOND)), "--no-color"),
                *(("--seed", _SEED) if fuzz_seconds <= _QUICK else ()),
                *(() if pytestconfig.getoption("long") else ("--phases", _QUICK_PHASES)),
                *("--header", f"Authorization: Bearer {server.key}"),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "CONVERTD_OWN_KEY_ID": key["key_id"]},
            capture_output=True,
            text=True,
        )
    assert found.returncode == 0, found.stdout + found.stderr
    operations = sum(
        verb in item for item in published()["paths"].values() for verb in ("get", "post", "put", "delete")
    )
    assert f"Tested: {operations - 1}\n" in found.stdout, found.stdout  # all but the document itself
