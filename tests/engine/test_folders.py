"""The folders of worker processes: which of those of other processes are removed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.executor.disk_quota import BaseFolder

_PROGRAM = """
import sys, time
from pathlib import Path
from engine.executor.disk_quota import BaseFolder
folder = BaseFolder(Path(sys.argv[1]))
Path(folder.path, "1").mkdir()
Path(folder.path, "1", "file").touch()
print(folder.path, flush=True)
time.sleep(60)
"""


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder that every user can reach, as the temporary folder of tests is not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _start(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def test_the_folder_of_a_process_that_was_killed_is_removed(parent: Path) -> None:
    killed, unused = _start(parent)
    _end(killed)
    running, used = _start(parent)

    own = BaseFolder(parent)

    assert not unused.exists()
    assert (used / "1" / "file").exists()
    _end(running)
    own.remove()
    assert not Path(own.path).exists()
    BaseFolder(parent).remove()
    assert not list(parent.iterdir())


def test_other_folders_are_kept(parent: Path) -> None:
    (parent / "convertd-data").mkdir()
    other = parent / "other"
    (other / "content").mkdir(parents=True)
    (parent / "convertd-workers-link").symlink_to(other)
    (parent / "convertd-workers-file").touch()
    names = {path.name for path in parent.iterdir()}
    foreign = parent / "convertd-workers-foreign"
    if os.geteuid() == 0:
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
        names.add(foreign.name)

    BaseFolder(parent).remove()

    assert {path.name for path in parent.iterdir()} == names
    assert (other / "content").exists()


def test_jobs_of_other_users_can_reach_their_folder(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's jobs have users of their own, who cannot reach folders below one that is private."""
    private, temporary = parent / "private", parent / "temporary"
    temporary.mkdir()
    private.mkdir(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    folder = BaseFolder(private / "workers")

    expected = temporary if os.geteuid() == 0 else private / "workers"
    assert Path(folder.path).parent == expected
    folder.remove()
