"""What the command does where the kernel lacks a layer: told by the doctor, refused if the sandbox is required."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.samples import sample

pytestmark = pytest.mark.long

_COMMAND = str(Path(sys.executable).with_name("convertd"))
# Runs a program to which the kernel seems to lack the system calls of that name.
_WITHOUT = """
import errno, os, sys
from engine.sandbox import privileges, seccomp
column = seccomp._COLUMN
lacking = {"landlock": 444, "seccomp": seccomp._SECCOMP, "namespaces": seccomp.DENIED["unshare"][column]}[sys.argv[1]]
privileges.renounce_privileges()
seccomp._install(seccomp._program(seccomp._answer([lacking], seccomp._REFUSE | errno.ENOSYS)))
os.execv(sys.argv[2], sys.argv[2:])
"""


def _run(
    folder: Path, *arguments: str, sandbox: str = "best_effort", lacking: str = "landlock"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _WITHOUT, lacking, _COMMAND, *arguments],
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


def test_the_doctor_tells_what_is_missing(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json").stdout)["sandbox"]

    assert not found["layers"]["landlock"]
    assert found["layers"]["seccomp"]
    assert found["proofs"]["no sockets"]
    assert not found["proofs"]["no foreign files"]


def test_the_doctor_misses_seccomp(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", lacking="seccomp").stdout)["sandbox"]

    assert not found["layers"]["seccomp"]
    assert found["layers"]["landlock"]
    assert found["proofs"]["no foreign files"]
    assert not found["proofs"]["no sockets"]
    assert not found["proofs"]["no processes"]


def test_the_doctor_misses_namespaces_which_others_make_up_for(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", lacking="namespaces", sandbox="required").stdout)["sandbox"]

    assert not found["layers"]["network_namespace"]
    assert all(found["proofs"].values())


@pytest.mark.parametrize("lacking", ["landlock", "seccomp"])
def test_jobs_go_on_without(folder: Path, lacking: str) -> None:
    assert _run(folder, "convert", "photo.png", "photo.jpg", lacking=lacking).returncode == 0
    assert (folder / "photo.jpg").read_bytes().startswith(b"\xff\xd8")


@pytest.mark.parametrize(
    ("lacking", "command", "missing"),
    [
        ("landlock", ("convert", "photo.png", "photo.jpg"), "landlock, no foreign files"),
        ("seccomp", ("serve", "--port", "0"), "seccomp, no sockets, no processes"),
    ],
)
def test_nothing_starts_if_the_sandbox_is_required(
    folder: Path, lacking: str, command: tuple[str, ...], missing: str
) -> None:
    done = _run(folder, *command, sandbox="required", lacking=lacking)

    assert done.returncode == 1
    assert f"the sandbox is required, and this is missing: {missing}" in done.stderr
    assert not (folder / "photo.jpg").exists()


def test_it_can_be_switched_off(folder: Path) -> None:
    found = json.loads(_run(folder, "doctor", "--json", sandbox="off").stdout)["sandbox"]

    assert {name for name, held in found["layers"].items() if held} == {"rlimits", "session", "parent_death_signal"}
