"""The set-up script and the lock files that it installs."""

import os
import pty
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_ROOT = Path(__file__).parents[2]
_LOCKS = tuple(
    f"config/requirements{part}.lock"
    for part in ("", "-cluster", "-mcp", "-sign", "-otel", "-console", "-video", "-test")
)
_UV_LOCK = "config/requirements-uv.lock"
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text())
_EXTRAS = _PROJECT["project"]["optional-dependencies"]
_BASE = [*_PROJECT["project"]["dependencies"], *_PROJECT["build-system"]["requires"]]
_DRIVERS = [*_EXTRAS["postgres"], *_EXTRAS["s3"]]
_REQUIRED = {
    "config/requirements.lock": [*_BASE, *_DRIVERS],
    "config/requirements-cluster.lock": [*_BASE, *_DRIVERS, *_EXTRAS["cluster"]],
    "config/requirements-mcp.lock": [*_BASE, *_DRIVERS, *_EXTRAS["mcp"]],
    "config/requirements-sign.lock": [*_BASE, *_DRIVERS, *_EXTRAS["sign"]],
    "config/requirements-otel.lock": [*_BASE, *_DRIVERS, *_EXTRAS["otel"]],
    "config/requirements-console.lock": [*_BASE, *_DRIVERS, *_EXTRAS["console"]],
    "config/requirements-video.lock": [*_BASE, *_DRIVERS, *_EXTRAS["video"]],
    "config/requirements-test.lock": [*_BASE, *_EXTRAS["test"]],
}
# Commands in place of the system's. dpkg-query knows all packages but those in the file `missing`.
_PROGRAMS = {
    "apt-get": 'echo "apt-get $*" >>"$LOG"',
    "dpkg-query": 'for name; do :; done; grep -qx "$name" "$MISSING" || echo "install ok installed"',
    "id": "echo 1000",
    "sudo": 'echo "sudo $*" >>"$LOG"',
}
_PIP = '#!/bin/sh\necho "pip $*" >>"$LOG"\n'
_UV = '#!/bin/sh\necho "uv $*" >>"$LOG"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the project's files, with a .venv whose Python and uv write their arguments to the file `log`."""
    for name in ("config", "web/client"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("pyproject.toml", "web/client/pyproject.toml", "config/setup.sh", _UV_LOCK, *_LOCKS):
        shutil.copy(_ROOT / name, tmp_path / name)
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, body in _PROGRAMS.items():
        _write_program(programs / name, f"#!/bin/sh\n{body}\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    _write_program(tmp_path / ".venv" / "bin" / "python", _PIP)
    _write_program(tmp_path / ".venv" / "bin" / "uv", _UV)
    _write_program(tmp_path / ".venv" / "bin" / "convertd", "#!/bin/sh\necho manual\n")
    for name in ("log", "missing"):
        (tmp_path / name).touch()
    return tmp_path


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _environment(folder: Path) -> dict[str, str]:
    paths = f"{folder / 'programs'}:{os.environ['PATH']}"
    return {**os.environ, "PATH": paths, "LOG": str(folder / "log"), "MISSING": str(folder / "missing")}


def _set_up(folder: Path, *arguments: str) -> str:
    """Runs the script without a terminal. Returns its output."""
    command = ["sh", "config/setup.sh", *arguments]
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "check": True}
    return str(subprocess.run(command, cwd=folder, env=_environment(folder), **options).stdout)


def _set_up_in_terminal(folder: Path, answer: str) -> str:
    """Runs the script in a terminal in which the answer is typed. Returns its output."""
    ours, terminal = pty.openpty()
    with subprocess.Popen(
        ["sh", "config/setup.sh"],
        cwd=folder,
        env=_environment(folder),
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    ) as process:
        os.close(terminal)
        os.write(ours, f"{answer}\n".encode())
        output = b""
        while chunk := _read(ours):
            output += chunk
        assert process.wait() == 0
    os.close(ours)
    return output.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # all programs in the terminal have ended
        return b""


def _log(folder: Path) -> list[str]:
    return (folder / "log").read_text().splitlines()


def test_missing_packages_are_shown_with_their_purpose_and_installed(folder: Path) -> None:
    (folder / "missing").write_text("curl\nghostscript\n")

    output = _set_up(folder)

    assert re.search(r"^  curl +sends the requests of the README\n  ghostscript +reads EPS$", output, re.MULTILINE)
    assert "setup: installing 2 Debian packages\n" in output
    assert [line for line in _log(folder) if " install " in line and not line.startswith(("pip", "uv"))] == [
        "sudo apt-get install -y -qq --no-install-recommends curl ghostscript"
    ]
    assert output.endswith("setup: ready\n")


@pytest.mark.parametrize(("answer", "installs"), [("", True), ("y", True), ("n", False)])
def test_sudo_is_used_in_a_terminal_after_a_question(folder: Path, answer: str, *, installs: bool) -> None:
    (folder / "missing").write_text("ghostscript\n")

    output = _set_up_in_terminal(folder, answer)

    assert "install them with sudo apt-get? [Y/n]" in output
    assert any(line.startswith("sudo ") for line in _log(folder)) == installs
    assert ("as root, run: apt-get install --no-install-recommends ghostscript" in output) != installs
    assert "setup: ready" in output


def test_nothing_is_asked_if_nothing_is_missing(folder: Path) -> None:
    assert "?" not in _set_up_in_terminal(folder, "")
    assert not [line for line in _log(folder) if not line.startswith(("pip", "uv"))]


def test_text_recognition_is_installed_on_request(folder: Path) -> None:
    (folder / "missing").write_text("tesseract-ocr\n")

    assert "tesseract" not in _set_up(folder)
    for arguments in (("ocr",), ("cluster", "ocr"), ("test",)):
        assert re.search(r"^  tesseract-ocr +recognizes English text", _set_up(folder, *arguments), re.MULTILINE)
    assert [line for line in _log(folder) if " install " in line and not line.startswith(("pip", "uv"))] == [
        "sudo apt-get install -y -qq --no-install-recommends tesseract-ocr"
    ] * 3
    assert ["requirements-cluster" in line for line in _log(folder)].count(True) == 1


def test_libreoffice_is_installed_on_request(folder: Path) -> None:
    (folder / "missing").write_text("libreoffice-calc-nogui\n")

    assert "libreoffice" not in _set_up(folder, "ocr")
    for arguments in (("office",), ("cluster", "ocr", "office"), ("test",)):
        assert re.search(r"^  libreoffice-calc-nogui +reads and writes", _set_up(folder, *arguments), re.MULTILINE)


def test_the_browser_is_installed_on_request(folder: Path) -> None:
    (folder / "missing").write_text("chromium-headless-shell\n")

    assert "chromium" not in _set_up(folder, "office")
    for arguments in (("browser",), ("test",)):
        assert re.search(r"^  chromium-headless-shell +shows pages", _set_up(folder, *arguments), re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "locks"),
    [
        ((), _LOCKS[:1]),
        (("cluster",), _LOCKS[:2]),
        (("cluster", "mcp", "sign", "otel", "console", "video"), _LOCKS[:-1]),
        (("test",), _LOCKS[-1:]),
    ],
)
def test_only_locked_versions_are_installed(folder: Path, arguments: tuple[str, ...], locks: tuple[str, ...]) -> None:
    output = _set_up(folder, *arguments)

    uv, *packages, project = _log(folder)
    assert uv.startswith("pip ")
    assert uv.endswith(f"--no-deps --require-hashes --requirement {_UV_LOCK}")
    assert all(line.startswith("uv ") for line in packages)
    options = [line.partition("--no-deps ")[2] for line in packages]
    assert options == [f"--require-hashes --requirement {lock}" for lock in locks]
    assert project.endswith("--no-deps --no-build-isolation --editable . --editable ./web/client")
    assert f"installing the Python packages of {' '.join(locks)}" in output
    assert (folder / ".venv/share/man/man1/convertd.1").read_text() == "manual\n"


def test_pip_installs_what_uv_cannot(folder: Path) -> None:
    _write_program(folder / ".venv" / "bin" / "uv", "#!/bin/sh\nexit 1\n")

    _set_up(folder)

    _, packages, project = _log(folder)
    assert packages.startswith("pip ")
    assert packages.endswith(f"--no-deps --require-hashes --requirement {_LOCKS[0]}")
    assert project.endswith("--no-deps --no-build-isolation --editable . --editable ./web/client")


def test_completed_steps_are_skipped(folder: Path) -> None:
    _set_up(folder)
    (folder / "log").write_text("")

    assert _set_up(folder) == "setup: ready\n"
    assert _log(folder) == []

    with (folder / _LOCKS[0]).open("a") as lock:
        lock.write("# changed\n")
    _set_up(folder)
    assert len(_log(folder)) == 3


@pytest.mark.parametrize("change", ["another version", "a copy", "another folder"])
def test_what_is_no_longer_installed_is_installed_again(folder: Path, change: str) -> None:
    packages = folder / ".venv" / "lib" / "python3.11" / "site-packages"
    origin = packages / "convertd-1.0.dist-info" / "direct_url.json"
    pillow = packages / "pillow-1.0.dist-info"
    for path in (origin.parent, pillow):
        path.mkdir(parents=True)
    origin.write_text('{"dir_info": {"editable": true}, "url": "file:///folder"}')
    _set_up(folder)
    (packages / "more-1.0.dist-info").mkdir()
    assert _set_up(folder) == "setup: ready\n"
    (folder / "log").write_text("")

    if change == "another version":
        pillow.rename(packages / "pillow-1.1.dist-info")
    elif change == "a copy":
        origin.write_text('{"dir_info": {}, "url": "file:///folder"}')
    else:
        folder = folder.rename(folder.with_name("moved"))
    output = _set_up(folder)

    assert "setup: no longer as it was installed:\n" in output
    assert len(_log(folder)) == 3
    assert _set_up(folder) == "setup: ready\n"


def _locked(lock: str) -> list[Requirement]:
    return [Requirement(line.rstrip("\\ ")) for line in (_ROOT / lock).read_text().splitlines() if line[:1] not in "# "]


@pytest.mark.parametrize("lock", _LOCKS)
def test_every_dependency_is_locked_within_its_bounds(lock: str) -> None:
    locked = {canonicalize_name(pin.name): pin.specifier for pin in _locked(lock)}

    for requirement in map(Requirement, _REQUIRED[lock]):
        (pin,) = locked[canonicalize_name(requirement.name)]
        assert pin.operator == "=="
        assert requirement.specifier.contains(pin.version), requirement
        assert lock.endswith("test.lock") or "<" in str(requirement.specifier) or requirement.name == "setuptools"


@pytest.mark.parametrize("lock", [*_LOCKS, _UV_LOCK])
def test_every_locked_package_has_hashes_and_no_address(lock: str) -> None:
    text = (_ROOT / lock).read_text()
    entries = re.split(r"\n(?=\w)", text)[1:]

    assert len(entries) == len(_locked(lock))
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text


def test_the_cluster_and_the_tests_run_with_the_versions_of_the_service() -> None:
    service, *parts, tests = ({(pin.name, str(pin.specifier)) for pin in _locked(lock)} for lock in _LOCKS)

    assert [(service - part, part - tests) for part in parts] == [(set(), set())] * len(parts)


def test_packages_of_parts_are_installed_only_on_request() -> None:
    *parts, tests = ({canonicalize_name(pin.name) for pin in _locked(lock)} for lock in _LOCKS)

    optional = {"dask", "distributed", "mcp", "pyhanko", "opentelemetry-sdk", "flask-swagger-ui", "av"}
    expected = [
        set(),
        {"dask", "distributed"},
        {"mcp"},
        {"pyhanko"},
        {"opentelemetry-sdk"},
        {"flask-swagger-ui"},
        {"av"},
    ]
    assert [optional & part for part in parts] == expected
    assert optional <= tests
