"""WorkFiles: removal of folders and limits on disk space."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from web.api.errors import NoSpace, RateLimited
from web.services.work_files import WorkFiles


async def test_stale_folders_are_removed_at_start(tmp_path: Path) -> None:
    work_files = WorkFiles(tmp_path / "jobs")
    work_files.prepare()
    old, new = await work_files.create(1), await work_files.create(1)
    (old / "input.jpg").write_bytes(b"x")
    os.utime(old, (0, 0))
    WorkFiles(tmp_path / "jobs").prepare()
    assert list((tmp_path / "jobs").iterdir()) == [new]
    work_files.discard(new)
    await work_files.close()
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_discarded_folders_are_removed(tmp_path: Path) -> None:
    work_files = WorkFiles(tmp_path / "jobs")
    work_files.prepare()
    for folder in [await work_files.create(1) for _ in range(3)]:
        (folder / "input.jpg").write_bytes(b"x")
        work_files.discard(folder)
    late = await work_files.create(1)
    await work_files.close()
    assert list((tmp_path / "jobs").iterdir()) == [late]
    work_files.discard(late)
    await work_files.close()
    assert list((tmp_path / "jobs").iterdir()) == []


async def test_uploads_share_a_limit(tmp_path: Path) -> None:
    work_files = WorkFiles(tmp_path / "jobs", space=20 << 20)
    work_files.prepare()
    first = await work_files.create(11 << 20)
    second = await work_files.create(1)
    with pytest.raises(RateLimited) as refused:
        await work_files.create(1)
    assert refused.value.reason == "queue_full"
    work_files.discard(second)
    await work_files.close()
    assert await work_files.create(1) != first
    with pytest.raises(RateLimited):
        await work_files.create(1)


async def test_a_reserve_of_the_disk_stays_free(tmp_path: Path) -> None:
    work_files = WorkFiles(tmp_path / "jobs", space=1 << 62)
    work_files.prepare()
    with pytest.raises(NoSpace):
        await work_files.create(1 << 60)
    assert list((tmp_path / "jobs").iterdir()) == []
