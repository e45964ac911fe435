"""What is erased from disk, and when."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from web.api.errors import NoSpace, RateLimited
from web.services.work_files import WorkFiles


async def test_folders_of_a_server_that_died_are_removed(tmp_path: Path) -> None:
    jobs = WorkFiles(tmp_path / "jobs")
    jobs.prepare()
    old, new = await jobs.open(1), await jobs.open(1)
    (old / "input.jpg").write_bytes(b"x")
    os.utime(old, (0, 0))
    WorkFiles(tmp_path / "jobs").prepare()
    assert list((tmp_path / "jobs").iterdir()) == [new]
    jobs.discard(new)
    await jobs.close()
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_whatever_is_discarded_goes(tmp_path: Path) -> None:
    jobs = WorkFiles(tmp_path / "jobs")
    jobs.prepare()
    for folder in [await jobs.open(1) for _ in range(3)]:
        (folder / "input.jpg").write_bytes(b"x")
        jobs.discard(folder)
    late = await jobs.open(1)
    await jobs.close()
    assert list((tmp_path / "jobs").iterdir()) == [late]
    jobs.discard(late)
    await jobs.close()
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_uploads_share_a_space(tmp_path: Path) -> None:
    jobs = WorkFiles(tmp_path / "jobs", space=20 << 20)
    jobs.prepare()
    first = await jobs.open(11 << 20)
    second = await jobs.open(1)
    with pytest.raises(RateLimited) as refused:
        await jobs.open(1)
    assert refused.value.reason == "queue_full"
    jobs.discard(second)
    await jobs.close()
    assert await jobs.open(1) != first
    with pytest.raises(RateLimited):
        await jobs.open(1)


async def test_the_disk_is_not_filled_up(tmp_path: Path) -> None:
    jobs = WorkFiles(tmp_path / "jobs", space=1 << 62)
    jobs.prepare()
    with pytest.raises(NoSpace):
        await jobs.open(1 << 60)
    assert list((tmp_path / "jobs").iterdir()) == []
