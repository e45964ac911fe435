"""The data folder has one server. A copy of it has another server, which leaves what the first one holds."""

import os
import shutil
from pathlib import Path

import pytest

from storage.database import Transaction
from storage.tables import accounts, ledger
from storage.tables.ledger import Hold, ServerInstance
from tests.support.samples.storage import read_totals
from tests.support.servers.in_process import Servers
from web.services.operation.maintenance import lock_data_folder, server_instance


@pytest.fixture
def data_dir(data_dir: Path) -> Path:
    data_dir.mkdir()
    return data_dir


def test_each_run_of_a_server_has_its_id(data_dir: Path) -> None:
    first, second = server_instance(data_dir), server_instance(data_dir)

    assert first.server == second.server
    assert first.boot != second.boot


def test_a_copy_has_a_server_of_its_own(data_dir: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    original = server_instance(data_dir)
    copy = Path(shutil.copytree(data_dir, tmp_path / "copy"))
    copied = server_instance(copy)

    assert copied.server != original.server
    assert "copied or moved" in caplog.text
    assert (server_instance(data_dir).server, server_instance(copy).server) == (original.server, copied.server)


@pytest.mark.parametrize("part", ["host", "device", "inode", None])
def test_each_part_of_the_place_tells_a_copy(data_dir: Path, part: str | None) -> None:
    """On another machine, the folder can have the same device and inode."""
    folder = data_dir.stat()
    place = {"host": os.uname().nodename, "device": folder.st_dev, "inode": folder.st_ino}
    if part is not None:
        place[part] = 1
    (data_dir / "server").write_text("srv_1 {host} {device}:{inode}".format(**place))

    assert (server_instance(data_dir).server == "srv_1") is (part is None)


def test_an_id_of_an_earlier_version_is_replaced(data_dir: Path) -> None:
    """It does not tell whether the folder was copied."""
    (data_dir / "server").write_text("srv_1")

    assert server_instance(data_dir).server != "srv_1"


def test_a_server_in_a_copy_does_not_release_what_the_first_one_holds(
    servers: Servers, data_dir: Path, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path / 'shared.db'}"
    with servers.running(data_dir, database_url=url) as first:
        running = server_instance(data_dir)
        shutil.copytree(data_dir, tmp_path / "copy")
        hold = first.database.run_blocking(_hold, running)
        with servers.running(tmp_path / "copy", database_url=url) as second:
            assert read_totals(second.database).held == 1
        assert first.database.run_blocking(ledger.release, hold.account, hold.id) == 50


def _hold(transaction: Transaction, owner: ServerInstance) -> Hold:
    account = accounts.create(transaction, "a@example.com", "Test", free_credits=50, verified=True)
    return ledger.reserve(transaction, account.id, 1, owner, 60)


def test_no_other_user_can_take_the_lock(data_dir: Path) -> None:
    (data_dir / "lock").touch(0o666)  # as earlier versions created it

    with lock_data_folder(data_dir):
        assert (data_dir / "lock").stat().st_mode & 0o777 == 0o600
