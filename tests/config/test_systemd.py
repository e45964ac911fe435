"""The systemd units restrict their services and still allow what the job sandbox needs."""

import re
import shlex
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from config.settings import ENV_PREFIX, Settings, load_settings
from web import app
from web.services.operation.closing import CLOSE_TIMEOUT
from web.services.operation.liveness import SILENCE
from web.workers import cluster_worker

_FOLDER = Path(__file__).parents[2] / "config" / "systemd"
_SERVER, _WORKER, _SCHEDULER = (_FOLDER / f"convertd{name}.service" for name in ("", "-worker", "-scheduler"))
_ALL = (_SERVER, _WORKER, _SCHEDULER)
_RUN_JOBS = (_SERVER, _WORKER)
_COMMANDS = "/opt/convertd/.venv/bin/"
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


def _values(unit: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", unit.read_text(), re.MULTILINE)


def _value(unit: Path, name: str) -> str:
    (value,) = _values(unit, name)
    return value


def _environment(unit: Path) -> dict[str, str]:
    """Returns the variables of the unit's file as parsed by a shell."""
    lines = (_FOLDER / Path(_value(unit, "EnvironmentFile")).name).read_text().splitlines()
    words = shlex.split("\n".join(lines), comments=True)
    return dict(word.split("=", 1) for word in words)


def _analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)


@cache
def _calls(name: str) -> frozenset[str]:
    """Returns the system calls of a group, including nested groups."""
    if not name.startswith("@"):
        return frozenset({name})
    lines = _analyze("syscall-filter", "--no-pager", name).stdout.splitlines()[1:]
    listed = [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]
    return frozenset().union(*map(_calls, listed))


def _allowed(unit: Path) -> set[str]:
    """Returns the allowed system calls. Each SystemCallFilter line adds to or removes from the previous ones."""
    allowed = set(_calls("@default"))
    for line in _values(unit, "SystemCallFilter"):
        calls = set().union(*(_calls(name) for name in line.removeprefix("~").split()))
        allowed = allowed - calls if line.startswith("~") else allowed | calls
    return allowed


@pytest.mark.parametrize("unit", _ALL, ids=lambda unit: unit.name)
def test_unit_is_valid(tmp_path: Path, unit: Path) -> None:
    installed = tmp_path / unit.name
    installed.write_text(unit.read_text().replace(_COMMANDS, f"{Path(sys.executable).parent}/"))

    done = _analyze("verify", "--man=no", "--recursive-errors=no", installed)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", _ALL, ids=lambda unit: unit.name)
def test_exposure_score_is_low(unit: Path) -> None:
    done = _analyze("security", "--no-pager", "--offline=true", f"--threshold={_EXPOSURE}", unit)

    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("unit", _RUN_JOBS, ids=lambda unit: unit.name)
def test_sandbox_system_calls_are_allowed(unit: Path) -> None:
    assert _allowed(unit) >= _CALLS_OF_JOBS
    assert set(_value(unit, "RestrictNamespaces").split()) == _NAMESPACES_OF_JOBS


@pytest.mark.parametrize("unit", _ALL, ids=lambda unit: unit.name)
def test_privileged_system_calls_are_forbidden(unit: Path) -> None:
    forbidden = {"mount", "chroot", "bpf", "ptrace", "setuid", "chown", "init_module", "reboot", "swapon"}

    assert not _allowed(unit) & forbidden


def test_stop_timeouts_exceed_the_drain_times() -> None:
    drain = app.DRAIN_TIMEOUT + 3 * CLOSE_TIMEOUT

    assert drain < app.STOP_TIMEOUT
    assert int(_value(_SERVER, "TimeoutStopSec")) >= app.STOP_TIMEOUT + 10
    assert int(_value(_SERVER, "WatchdogSec")) > 2 * SILENCE
    assert int(_value(_WORKER, "TimeoutStopSec")) >= cluster_worker.DRAIN_TIMEOUT + 10
    for unit in _RUN_JOBS:
        assert _value(unit, "KillMode") == "mixed"  # jobs receive no signal before the timeout
        assert _value(unit, "OOMPolicy") == "continue"


@pytest.mark.parametrize("unit", _RUN_JOBS, ids=lambda unit: unit.name)
def test_data_directory_is_the_state_directory(unit: Path) -> None:
    folder = _value(unit, "StateDirectory")

    assert _value(unit, "WorkingDirectory") == f"/var/lib/{folder}"
    assert _environment(unit)["CONVERTD_DATA_DIR"] == f"/var/lib/{folder}"


@pytest.mark.parametrize("unit", _RUN_JOBS, ids=lambda unit: unit.name)
def test_environment_has_valid_settings(monkeypatch: pytest.MonkeyPatch, unit: Path) -> None:
    environment = _environment(unit)
    monkeypatch.delenv("CONVERTD_TEMPLATES_AHEAD")  # of all tests
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    settings = load_settings()

    ours = {name for name in environment if name.startswith(ENV_PREFIX)}
    assert {ENV_PREFIX + name.upper() for name in settings.model_fields_set} == ours
    assert settings.sandbox == "required"
    if unit == _SERVER:
        assert settings.mail_from == "convertd <no-reply@example.com>"


def test_a_server_and_a_worker_can_run_on_one_machine() -> None:
    of_server, of_worker = (_environment(unit) for unit in _RUN_JOBS)

    assert of_server["CONVERTD_DATA_DIR"] != of_worker["CONVERTD_DATA_DIR"]
    assert int(of_worker["CONVERTD_METRICS_PORT"]) != Settings().metrics_port


def test_the_scheduler_repeats_no_jobs_and_keeps_none_waiting() -> None:
    assert {value for value in _values(_SCHEDULER, "Environment") if "COMM" not in value} == {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES=0",
        "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT=5s",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL=30s",
    }
    address = urlsplit(_environment(_WORKER)["CONVERTD_CLUSTER"])
    assert f" --protocol {address.scheme} --port {address.port} " in _value(_SCHEDULER, "ExecStart")


def test_the_cluster_uses_tls() -> None:
    of_scheduler = {value for value in _values(_SCHEDULER, "Environment") if "COMM" in value}
    of_worker = {f"{name}={value}" for name, value in _environment(_WORKER).items() if "COMM" in name}

    assert {value.replace("SCHEDULER", "WORKER") for value in of_scheduler} == of_worker
    assert not [name for name in _environment(_WORKER) if name.startswith("AWS_") or name.endswith("_URL")]
