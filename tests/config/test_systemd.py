"""The systemd unit restricts the service and still allows what the job sandbox needs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from config.settings import ENV_PREFIX, load_settings
from web import app
from web.services import email

_UNIT = Path(__file__).parents[2] / "config" / "systemd" / "convertd.service"
_COMMAND = "/opt/convertd/.venv/bin/convertd"
_EXPOSURE = 25  # in tenths; an unrestricted unit has 96

# System calls of the sandbox layers, and those that start and end jobs.
_CALLS_OF_JOBS = {
    *("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self", "seccomp", "prctl"),
    *("unshare", "capset", "setsid", "setpgid", "setpriority", "prlimit64", "umask"),
    *("fork", "clone", "clone3", "vfork", "execve", "wait4", "kill", "socketpair", "sendmsg", "recvmsg"),
    *("pidfd_open", "pidfd_send_signal"),
}
_NAMESPACES_OF_JOBS = {"user", "net", "ipc"}

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed here")


def _values(name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", _UNIT.read_text(), re.MULTILINE)


def _value(name: str) -> str:
    (value,) = _values(name)
    return value


def _environment() -> dict[str, str]:
    """Returns the variables as parsed by a shell."""
    lines = _UNIT.with_name("environment").read_text().splitlines()
    words = shlex.split("\n".join(lines), comments=True)
    return dict(word.split("=", 1) for word in words)


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


def _calls(name: str) -> set[str]:
    """Returns the system calls of a group, including nested groups."""
    if not name.startswith("@"):
        return {name}
    lines = _analyze("syscall-filter", "--no-pager", name).stdout.splitlines()[1:]
    listed = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return set().union(*(_calls(entry) for entry in listed))


def _allowed() -> set[str]:
    """Returns the allowed system calls. Each SystemCallFilter line adds to or removes from the previous ones."""
    allowed = _calls("@default")
    for line in _values("SystemCallFilter"):
        calls = set().union(*(_calls(name) for name in line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


def test_unit_is_valid(tmp_path: Path) -> None:
    unit = tmp_path / _UNIT.name
    unit.write_text(_UNIT.read_text().replace(_COMMAND, str(Path(sys.executable).with_name("convertd"))))

    done = _analyze("verify", "--man=no", "--recursive-errors=no", unit)

    assert (done.returncode, done.stderr) == (0, "")


def test_exposure_score_is_low() -> None:
    done = _analyze("security", "--no-pager", "--offline=true", f"--threshold={_EXPOSURE}", _UNIT)

    assert done.returncode == 0, done.stdout


def test_sandbox_system_calls_are_allowed() -> None:
    assert _allowed() >= _CALLS_OF_JOBS
    assert set(_value("RestrictNamespaces").split()) == _NAMESPACES_OF_JOBS


def test_privileged_system_calls_are_forbidden() -> None:
    assert not _allowed() & {"mount", "chroot", "bpf", "ptrace", "setuid", "chown", "init_module", "reboot", "swapon"}


def test_stop_timeout_exceeds_the_drain_time() -> None:
    drain = app._DRAIN_TIMEOUT + app._CANCEL_TIMEOUT + email._CLOSE_TIMEOUT

    assert int(_value("TimeoutStopSec")) >= drain + 10
    assert _value("KillMode") == "mixed"  # jobs receive no signal before the timeout
    assert _value("OOMPolicy") == "continue"


def test_data_directory_is_the_state_directory() -> None:
    folder = _value("StateDirectory")

    assert _value("WorkingDirectory") == f"/var/lib/{folder}"
    assert _environment()["CONVERTD_DATA_DIR"] == f"/var/lib/{folder}"


def test_environment_has_valid_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = _environment()
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    settings = load_settings()

    assert {ENV_PREFIX + name.upper() for name in settings.model_fields_set} == set(environment)
    assert settings.mail_from == "convertd <no-reply@example.com>"
