"""CONVERTD_SANDBOX on kernels that lack a layer: `doctor` reports it, and `required` refuses to start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import COMMAND
from tests.support.samples import sample

pytestmark = pytest.mark.long

# Runs a program under a seccomp filter that makes a system call unavailable.
_WITHOUT = """
import ctypes, errno, os, sys
calls = {"landlock": b"landlock_create_ruleset", "seccomp": b"seccomp", "namespaces": b"unshare"}
library = ctypes.CDLL("libseccomp.so.2")
library.seccomp_init.restype = ctypes.c_void_p
rules = ctypes.c_void_p(library.seccomp_init(0x7FFF0000))  # allow by default
number = library.seccomp_syscall_resolve_name(calls[sys.argv[1]])
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
        env={**os.environ, "CONVERTD_SANDBOX": sandbox, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photo.png").write_bytes(sample("png"))
    return tmp_path


def test_doctor_reports_missing_landlock(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json").stdout)["sandbox"]

    assert not found["layers"]["landlock"]
    assert found["layers"]["seccomp"]
    assert found["proofs"]["no sockets"]
    assert not found["proofs"]["no foreign files"]


def test_doctor_reports_missing_seccomp(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", lacking="seccomp").stdout)["sandbox"]

    assert not found["layers"]["seccomp"]
    assert found["layers"]["landlock"]
    assert found["proofs"]["no foreign files"]
    assert not found["proofs"]["no sockets"]
    assert not found["proofs"]["no processes"]
    assert not found["proofs"]["no signals"]


def test_other_layers_compensate_for_missing_namespaces(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", lacking="namespaces", sandbox="required").stdout)["sandbox"]

    assert not found["layers"]["network_namespace"]
    assert all(found["proofs"].values())


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
def test_required_refuses_to_start_without_a_layer(
    folder: Path, lacking: str, command: tuple[str, ...], missing: str
) -> None:
    done = _run(folder, *command, sandbox="required", lacking=lacking)

    if os.geteuid() != 0:
        missing = f"own_user, {missing}"
    assert done.returncode == 1
    assert f"the sandbox is required but incomplete; missing: {missing}" in done.stderr
    assert not (folder / "photo.jpg").exists()


def test_off_keeps_only_process_limits(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", sandbox="off").stdout)["sandbox"]

    assert {name for name, held in found["layers"].items() if held} == {
        "rlimits",
        "process_group",
        "parent_death_signal",
    }
