"""CONVERTD_SANDBOX on kernels that lack a layer: `doctor` reports it, and `required` refuses to start."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND
from tests.support.samples.generated import sample

pytestmark = pytest.mark.slow

# Runs a program under a seccomp filter that makes system calls unavailable.
_WITHOUT = """
import ctypes, errno, os, sys
calls = {"landlock": b"landlock_create_ruleset", "seccomp": b"seccomp", "namespaces": b"unshare"}
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))  # allow by default
for layer in sys.argv[1].split():
    number = library.seccomp_syscall_resolve_name(calls[layer])
    assert library.seccomp_rule_add(rules, 0x00050000 | errno.ENOSYS, number, 0) == 0
assert library.seccomp_load(rules) == 0
os.execv(sys.argv[2], sys.argv[2:])
"""


def _run(
    folder: Path, *arguments: str, sandbox: str = "best_effort", lacking: str = "landlock"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, lacking, COMMAND, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        env={**os.environ, "CONVERTD_SANDBOX": sandbox, "PYTHONPATH": str(Path(__file__).parents[3])},
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photo.png").write_bytes(sample("png"))
    return tmp_path


def test_doctor_reports_missing_layers(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", lacking="seccomp namespaces").stdout)["sandbox"]
    layers, checks = found["layers"], found["proofs"]

    assert (layers["seccomp"], layers["network_namespace"], layers["landlock"]) == (False, False, True)
    assert {name for name, passed in checks.items() if passed} == {"no foreign files", "own folder"}
    assert found["complete"] is False
    assert {"seccomp", "network_namespace"} <= found["advice"].keys() <= {name for name, on in layers.items() if not on}


def test_other_layers_compensate_for_missing_namespaces(folder: Path) -> None:
    done = _run(folder, "convert", "photo.png", "photo.jpg", sandbox="required", lacking="namespaces")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("lacking", ["landlock", "seccomp"])
def test_best_effort_converts_without_a_layer(folder: Path, lacking: str) -> None:
    assert _run(folder, "convert", "photo.png", "photo.jpg", lacking=lacking).returncode == 0
    assert (folder / "photo.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("lacking", "command", "missing"),
    [
        ("landlock", ("convert", "photo.png", "photo.jpg"), "landlock, no foreign files"),
        ("seccomp", ("serve", "--port", "0"), "seccomp, no sockets, no processes, no programs, no signals"),
    ],
)
def test_required_refuses_to_lack_a_layer(folder: Path, lacking: str, command: tuple[str, ...], missing: str) -> None:
    done = _run(folder, *command, sandbox="required", lacking=lacking)

    if os.geteuid() != 0:
        missing = f"own_user, {missing}"
    assert done.returncode == 1
    assert f"the sandbox is required but incomplete; missing: {missing}; see" in done.stderr
    assert not (folder / "photo.jpg").exists()
