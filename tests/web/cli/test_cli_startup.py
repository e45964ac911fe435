"""What the command prints before it does any work: its version, completions, and why it cannot start."""

import os
import re
import shutil
import subprocess
import sys
from importlib.machinery import PathFinder
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from socket import create_server

import pytest

from engine.registry import load_registry
from storage.database import Database, Transaction
from tests.support.command_line import COMMAND, invoke, run_command
from web.cli import installation

_SERVE, _ACCOUNTS = ("serve", "--port", "0"), ("account", "list")
_BLOBS, _SCHEDULER = "file:///dev/shm/blobs", "tcp://127.0.0.1:8786"  # not used: the commands end before
_CLUSTER = {"CONVERTD_BLOB_URL": _BLOBS, "CONVERTD_CLUSTER": _SCHEDULER}


def _hide(folder: Path, package: str) -> str:
    """Returns a PYTHONPATH on which the package cannot be imported."""
    (folder / "hidden").mkdir()
    error = f"raise ModuleNotFoundError('No module named {package}', name='{package}')"
    (folder / "hidden" / f"{package}.py").write_text(error)
    return str(folder / "hidden")


def _check(message: str, *parts: str) -> None:
    assert message.startswith("convertd: ")
    assert message.count("\n") == 1
    for part in parts:
        assert part in message


def _message(folder: Path, *command: str, **environment: str) -> str:
    """Runs the command, which must fail without a result, in a process. Returns its message."""
    done = run_command(folder, *command, **environment)
    assert (done.returncode, done.stdout) == (1, "")
    return done.stderr


def _messages(folder: Path, **environment: str) -> tuple[str, str]:
    """Runs a server in a process, and a command of accounts in this one. Both must fail. Returns their messages."""
    listed = invoke(folder, *_ACCOUNTS, **environment)
    assert (listed.exit_code, listed.stdout) == (1, "")
    return _message(folder, *_SERVE, **environment), listed.stderr


def test_the_version(tmp_path: Path) -> None:
    done = run_command(tmp_path, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(r"convertd \d+\.\d+\.\d+\n", done.stdout)


def test_the_database_does_not_run(tmp_path: Path) -> None:
    for message in _messages(tmp_path, CONVERTD_DATABASE_URL="postgresql://user:sesame@127.0.0.1:1/name"):
        _check(message, "cannot use the database", "Connection refused", "CONVERTD_DATABASE_URL")
        assert "sesame" not in message


@pytest.mark.parametrize("command", [_SERVE, _ACCOUNTS])
def test_the_driver_of_postgresql_is_missing(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = _hide(tmp_path, "psycopg")

    message = _message(tmp_path, *command, PYTHONPATH=path, CONVERTD_DATABASE_URL="postgresql://127.0.0.1/name")

    _check(message, "psycopg", "pip install 'psycopg[binary]'")


def test_the_driver_of_s3_is_missing(tmp_path: Path) -> None:
    environment = {"PYTHONPATH": _hide(tmp_path, "obstore"), "CONVERTD_BLOB_URL": "s3://bucket/files"}
    assert invoke(tmp_path, "account", "create", "--email", "a@example.test", "--name", "Test").exit_code == 0

    for command in (_SERVE, ("account", "delete", "a@example.test", "--yes")):
        _check(_message(tmp_path, *command, **environment), "obstore", "pip install obstore")

    assert "a@example.test" in invoke(tmp_path, *_ACCOUNTS).stdout


@pytest.mark.parametrize("command", [_SERVE, ("worker",)])
def test_the_package_of_clusters_is_missing(tmp_path: Path, command: tuple[str, ...]) -> None:
    message = _message(tmp_path, *command, PYTHONPATH=_hide(tmp_path, "distributed"), **_CLUSTER)

    _check(message, "distributed", "sh config/setup.sh cluster")


def test_the_client_is_missing(tmp_path: Path) -> None:
    path = _hide(tmp_path, "convertd_client")

    _check(_message(tmp_path, "jobs", "list", PYTHONPATH=path), "convertd-client", "pip install ./web/client")


def test_a_server_imports_nothing_of_dask_and_agents_that_it_does_not_use(tmp_path: Path) -> None:
    script = (
        "import sys; from config.settings import Settings; from engine.registry import load_registry; "
        "from web import app; app.server_executor(Settings(), load_registry()); "
        "print({'dask', 'distributed', 'mcp'} & set(sys.modules))"
    )

    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, capture_output=True, text=True)

    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (
            (),
            {"CONVERTD_BLOB_URL": _BLOBS},
            "a worker needs the address of a scheduler: --scheduler or CONVERTD_CLUSTER",
        ),
        (("--memory", "lots"), _CLUSTER, "--memory must be a size such as 4GiB, not 'lots'"),
        (("--memory", "0"), _CLUSTER, "--memory must be a size such as 4GiB, not '0'"),
        (("--scheduler", "scheduler"), _CLUSTER, "--scheduler must be the address of a Dask scheduler, such as tcp://"),
    ],
)
def test_a_worker_is_not_configured(
    tmp_path: Path, arguments: tuple[str, ...], environment: dict[str, str], message: str
) -> None:
    done = invoke(tmp_path, "worker", *arguments, **environment)

    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"convertd: {message}")
    assert done.stderr.count("\n") == 1


def test_a_cluster_needs_a_shared_blob_store(tmp_path: Path) -> None:
    done = run_command(tmp_path, *_SERVE, CONVERTD_CLUSTER=_SCHEDULER)

    assert done.returncode == 2
    _check(done.stderr, "CONVERTD_CLUSTER requires CONVERTD_BLOB_URL")


@pytest.mark.parametrize(
    ("command", "scheduler", "variables", "message"),
    [
        (_SERVE, "tcp://scheduler:8786", {}, "set CONVERTD_CLUSTER_INSECURE=true"),
        pytest.param(
            ("worker",), "tcp://scheduler:8786", {}, "set CONVERTD_CLUSTER_INSECURE=true", marks=pytest.mark.long
        ),
        (_SERVE, "tls://127.0.0.1:8786", {}, "begins with tls://, which requires DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
        (_SERVE, "tcp://127.0.0.1:8786", {"REQUIRE_ENCRYPTION": "true"}, "must begin with tls://"),
        (
            ("worker",),
            "tls://127.0.0.1:8786",
            {"TLS__CA_FILE": "/none.pem", "TLS__CLIENT__CERT": "/none.pem", "TLS__WORKER__CERT": "/none.pem"},
            "cannot use the files of DASK_DISTRIBUTED__COMM__TLS__CA_FILE",
        ),
    ],
)
def test_the_variables_of_tls(
    tmp_path: Path, command: tuple[str, ...], scheduler: str, variables: dict[str, str], message: str
) -> None:
    dask = {f"DASK_DISTRIBUTED__COMM__{name}": value for name, value in variables.items()}

    done = run_command(tmp_path, *command, **{**_CLUSTER, "CONVERTD_CLUSTER": scheduler}, **dask)

    assert done.returncode == 2
    _check(done.stderr.splitlines(keepends=True)[-1], message)
    assert "Traceback" not in done.stderr


def test_the_address_of_a_worker_is_in_use(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as server:
        address = ("--host", "127.0.0.1", "--port", str(server.getsockname()[1]))

        message = _message(tmp_path, "worker", *address, **_CLUSTER)

    _check(message, f"cannot listen on 127.0.0.1:{address[-1]}: Address already in use")


def test_the_database_belongs_to_a_newer_release(tmp_path: Path) -> None:
    def upgrade(transaction: Transaction) -> None:
        insert = "INSERT INTO schema_migration (name, applied) VALUES ('9999_later', '2030-01-01 00:00:00')"
        transaction.connection.execute_sql(insert)

    database = Database(f"sqlite:///{tmp_path / 'data' / 'convertd.db'}")
    database.run_blocking(upgrade)
    database.close()

    for message in _messages(tmp_path):
        _check(message, "newer release", "Install that release")


@pytest.mark.parametrize("data_dir", [pytest.param("/proc/data", marks=pytest.mark.long), "file"])
def test_the_data_folder_cannot_be_written_to(tmp_path: Path, data_dir: str) -> None:
    (tmp_path / "file").write_text("not a folder")

    for message in _messages(tmp_path, CONVERTD_DATA_DIR=data_dir):
        _check(message, data_dir, "CONVERTD_DATA_DIR")


def test_the_file_system_is_read_only(small_disk: Path) -> None:
    assert invoke(small_disk, "account", "create", "--email", "a@example.test", "--name", "Test").exit_code == 0
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    for message in _messages(small_disk):
        _check(message, "CONVERTD_DATA_DIR")


def test_the_file_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_text("This file is not a database. " * 100)

    for message in _messages(tmp_path, CONVERTD_DATABASE_URL=f"sqlite:///{tmp_path / 'other.db'}"):
        _check(message, "file is not a database", "CONVERTD_DATABASE_URL")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            "convertd ",
            {
                "account",
                "archive",
                "backup",
                "cluster",
                "config",
                "convert",
                "doctor",
                "formats",
                "jobs",
                "login",
                "man",
                "mcp",
                "plugin",
                "restore",
                "serve",
                "tools",
                "watch",
                "worker",
                *load_registry().tools,
            },
        ),
        ("convertd account ", {"create", "list", "show", "delete", "grant", "audit", "invite", "key", "log", "set"}),
        ("convertd convert --max-b", {"--max-bytes"}),
        ("convertd convert --overw", {"--overwrite"}),
        ("convertd convert --fit co", {"cover", "contain"}),
        ("convertd convert --to pn", {"png"}),
        ("convertd convert --from ra", {"raf"}),
        ("convertd pdf-from-images --orientation l", {"landscape"}),
    ],
)
def test_completions(tmp_path: Path, words: str, expected: set[str]) -> None:
    number = str(len(words.split(" ")) - 1)

    done = invoke(tmp_path, _CONVERTD_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=number)

    assert set(done.stdout.split()) == expected


def test_completion_is_installed(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    assert bash is not None
    script = f"{COMMAND} --install-completion; exit $?"

    subprocess.run([bash, "-c", script], check=True, capture_output=True, env={**os.environ, "HOME": str(tmp_path)})

    assert "convertd" in (tmp_path / ".bashrc").read_text()


@pytest.mark.parametrize("name", ["config.py", "engine/__init__.py", "storage/x"])
def test_a_package_of_another_project_that_hides_ours_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).touch()
    finder = PathFinder.find_spec(name.partition("/")[0].removesuffix(".py"), [str(tmp_path)])
    assert finder is not None
    monkeypatch.setattr(
        installation, "find_spec", lambda package: finder if package == finder.name else find_spec(package)
    )

    assert (installation.find_hidden() or "").startswith(str(finder.origin or "a folder storage without"))


def test_a_file_that_another_distribution_has_replaced_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "convertd-1.0.dist-info").mkdir()
    (tmp_path / "convertd-1.0.dist-info" / "RECORD").write_text("config/__init__.py,,3\nweb/x.py,,4\nweb/none.pyc,,\n")
    for name in ("config/__init__.py", "web/x.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("one\n")
    found = Distribution.at(tmp_path / "convertd-1.0.dist-info")
    monkeypatch.setattr("importlib.metadata.distribution", {"convertd": found}.__getitem__)

    assert (installation.find_damaged() or "").startswith(f"{tmp_path}/config/__init__.py is not the file")
    (tmp_path / "config" / "__init__.py").write_text("12\n")
    assert installation.find_damaged() is None
    (tmp_path / "web" / "x.py").unlink()
    assert "web/x.py" in (installation.find_damaged() or "")
