"""Blob stores: the folder and S3 behave alike."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote

import pytest

from storage.blobs import url_transfers
from storage.blobs.blob_store import BlobStore, FolderBlobStore, open_blob_store
from storage.blobs.s3 import S3BlobStore
from storage.blobs.url_transfers import UrlTransfers
from storage.descriptors import BLOCK
from storage.errors import NotFound, StoreUnavailable
from storage.ids import new_id
from tests.support.servers.stores import S3Server

MIB = 1 << 20
Open = Callable[..., BlobStore]


@pytest.fixture(params=["folder", "s3"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens an empty store of each kind, with a clock if given."""
    if request.param == "folder":
        return lambda **options: FolderBlobStore(tmp_path / "blobs", **options)
    server: S3Server = request.getfixturevalue("s3_server")
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    url = server.url(new_id("prefix"))
    return lambda **options: S3BlobStore(url, **options)


@pytest.fixture
def blobs(opened: Open) -> BlobStore:
    return opened()


async def put(blobs: BlobStore, key: str, data: bytes, folder: Path) -> None:
    path = folder / "upload"
    path.write_bytes(data)
    await put_file(blobs, key, path)


async def put_file(blobs: BlobStore, key: str, path: Path) -> None:
    with path.open("rb") as file:
        await blobs.put(key, file.fileno())


async def read(blobs: BlobStore, key: str, start: int, end: int) -> bytes:
    return b"".join([block async for block in blobs.read(key, start, end)])


def resident() -> int:
    """Memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    """Number of files open in this process."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def listed(blobs: BlobStore, older_than: int = 0) -> set[str]:
    return {key async for key in blobs.list(older_than)}


def kill_at_the_first_file(command: list[str], folder: Path) -> None:
    """Kills the process once the folder contains a file."""
    with subprocess.Popen(command) as process:
        while not any(folder.iterdir()):
            assert process.poll() is None
        process.kill()


async def test_blobs_can_be_read(blobs: BlobStore, tmp_path: Path) -> None:
    data = os.urandom(2 * BLOCK + 7)
    await put(blobs, "blob_1", data, tmp_path)
    assert await read(blobs, "blob_1", 0, len(data)) == data
    for start, end in [(0, 1), (5, BLOCK + 5), (BLOCK, BLOCK + 1), (len(data) - 1, len(data))]:
        assert await read(blobs, "blob_1", start, end) == data[start:end]


async def test_a_blob_is_a_copy(blobs: BlobStore, tmp_path: Path) -> None:
    await put(blobs, "blob_1", b"before", tmp_path)
    (tmp_path / "upload").write_bytes(b"after!")
    assert await read(blobs, "blob_1", 0, 6) == b"before"


async def test_a_put_that_fails_leaves_an_earlier_blob(blobs: BlobStore, tmp_path: Path) -> None:
    """Such as the result of the run of a job that another server has ended meanwhile."""
    await put(blobs, "blob_1", b"before", tmp_path)

    unreadable = os.open(tmp_path / "upload", os.O_WRONLY)
    with pytest.raises((OSError, StoreUnavailable)):
        await blobs.put("blob_1", unreadable)
    os.close(unreadable)

    assert await read(blobs, "blob_1", 0, 6) == b"before"
    assert await listed(blobs) == {"blob_1"}


async def test_blobs_can_be_moved(blobs: BlobStore, tmp_path: Path) -> None:
    await put(blobs, "result_1", b"bytes", tmp_path)
    assert await blobs.move("result_1", "blob_1") == 5
    assert await listed(blobs) == {"blob_1"}
    assert await read(blobs, "blob_1", 0, 5) == b"bytes"
    with pytest.raises(NotFound):
        await blobs.move("result_1", "blob_2")


async def test_transfers_by_url(blobs: BlobStore, tmp_path: Path) -> None:
    data = os.urandom(2 * BLOCK + 7)
    (tmp_path / "upload").write_bytes(data)
    transfers = UrlTransfers()
    with (tmp_path / "upload").open("rb") as file:
        await transfers.write(await blobs.write_url("blob_1", 60), file.fileno())
    url = await blobs.read_url("blob_1", 60)
    for size in (1, BLOCK + 1, len(data), 2 * len(data)):
        assert b"".join([block async for block in transfers.read(url, size)]) == data[:size]
    with pytest.raises(NotFound):
        await anext(transfers.read(await blobs.read_url("blob_2", 60), 1))
    await transfers.close()


@pytest.mark.parametrize("stalled", [False, True])
async def test_transfers_from_a_lost_store(tmp_path: Path, stalled: bool) -> None:
    transfers = UrlTransfers(timeout=0.1)
    with socket.create_server(("127.0.0.1", 0)) as store, (tmp_path / "upload").open("w+b") as file:
        url = f"http://127.0.0.1:{store.getsockname()[1] if stalled else 1}/bucket/blob_1"
        with pytest.raises(StoreUnavailable):
            await transfers.write(url, file.fileno())
        with pytest.raises(StoreUnavailable):
            await anext(transfers.read(url, 1))
    await transfers.close()


async def test_after_a_timeout_transfers_have_less_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(url_transfers, "RETRY_TIMEOUT", 0.1)
    transfers = UrlTransfers(timeout=0.8)
    seconds = []
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        url = f"http://127.0.0.1:{stalled.getsockname()[1]}/bucket/blob_1"
        for _ in range(2):
            started = time.monotonic()
            with pytest.raises(StoreUnavailable):
                await anext(transfers.read(url, 1))
            seconds.append(time.monotonic() - started)
    assert seconds[1] < 0.8 <= seconds[0]
    await transfers.close()


@pytest.mark.parametrize(("size", "requests"), [(2000, 1), (5 * MIB - 1, 1), (5 * MIB, 3)])
async def test_requests_of_a_put(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int, requests: int
) -> None:
    """A file of 5 MiB or more is uploaded in parts, between a request that begins and one that completes them."""
    for name, value in s3_server.environment.items():
        monkeypatch.setenv(name, value)
    prefix = new_id("prefix")
    await put(S3BlobStore(s3_server.url(prefix)), "blob_1", bytes(size), tmp_path)
    assert s3_server.log().count(f"/{prefix}/blob_1") == requests


async def test_unknown_keys_are_not_found(blobs: BlobStore) -> None:
    with pytest.raises(NotFound):
        await read(blobs, "blob_1", 0, 1)
    assert await listed(blobs) == set()


async def test_deleted_blobs_are_not_found(blobs: BlobStore, tmp_path: Path) -> None:
    for key in ("blob_1", "blob_2", "blob_3"):
        await put(blobs, key, b"bytes", tmp_path)
    await blobs.delete(["blob_1", "nothing", "blob_3"])
    await blobs.delete([])
    assert await listed(blobs) == {"blob_2"}


@pytest.mark.parametrize("key", ["", ".", "..", "../up", "a/b", "/etc/passwd", "a b", "ä", "a\x00", "a\n", "x" * 201])
async def test_malformed_keys_are_rejected(blobs: BlobStore, tmp_path: Path, key: str) -> None:
    with pytest.raises(ValueError, match="A key has"):
        await put(blobs, key, b"bytes", tmp_path)
    with pytest.raises(ValueError, match="A key has"):
        await read(blobs, key, 0, 1)
    with pytest.raises(ValueError, match="A key has"):
        await blobs.delete([key])


async def test_blobs_are_listed_by_their_age(opened: Open, tmp_path: Path) -> None:
    path = tmp_path / "old"
    path.write_bytes(b"made long before it is put")
    os.utime(path, (0, 0))
    await put_file(opened(), "blob_1", path)
    later = opened(clock=lambda: time.time() + 3600)
    assert await listed(later, 3700) == set()
    assert await listed(later, 3500) == {"blob_1"}


async def test_many_blobs_are_listed(blobs: BlobStore, tmp_path: Path) -> None:
    for number in range(1, 61):
        await put(blobs, f"blob_{number}", b"b", tmp_path)
    assert len(await listed(blobs)) == 60


async def test_stores_are_ready(blobs: BlobStore) -> None:
    assert await blobs.ready()


async def test_a_large_blob_takes_little_memory(blobs: BlobStore, tmp_path: Path) -> None:
    size = 60 * MIB
    path = tmp_path / "large"
    with path.open("wb") as file:
        file.truncate(size)
    await put_file(blobs, "blob_1", path)
    before = largest = resident()
    total = 0
    async for block in blobs.read("blob_1", 0, size):
        total += len(block)
        largest = max(largest, resident())
    assert total == size
    assert largest - before < 30 * MIB


async def test_a_folder_without_space_is_not_ready(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path / "blobs")
    (tmp_path / "blobs").rmdir()
    assert not await blobs.ready()


async def test_an_interrupted_put_leaves_no_blob(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path / "blobs")
    script = (
        "import asyncio, os, pathlib, sys, storage.blobs.blob_store as b; "
        "folder, upload = map(pathlib.Path, sys.argv[1:]); "
        "asyncio.run(b.FolderBlobStore(folder).put('blob_1', os.open(upload, os.O_RDONLY)))"
    )
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        upload = Path(elsewhere) / "upload"
        with upload.open("wb") as file:
            file.truncate(200 * MIB)
        kill_at_the_first_file([sys.executable, "-c", script, str(tmp_path / "blobs"), str(upload)], tmp_path / "blobs")
        assert upload.exists()
    with pytest.raises(NotFound):
        await read(blobs, "blob_1", 0, 1)
    (left,) = await listed(blobs)
    await blobs.delete([left])
    assert await listed(blobs) == set()


async def test_files_of_another_file_system_are_copied(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path / "blobs")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        await put(blobs, "blob_1", b"bytes", Path(elsewhere))
    assert await read(blobs, "blob_1", 0, 5) == b"bytes"
    assert await listed(blobs) == {"blob_1"}


@pytest.mark.parametrize("end", ["kill", "stall"])
async def test_an_unavailable_store_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outages: Callable[[], int], end: str
) -> None:
    with S3Server() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        blobs = S3BlobStore(server.url("prefix"), timeout=0.3)
        await put(blobs, "blob_1", b"bytes", tmp_path)
        getattr(server, end)()
        async with asyncio.timeout(60):
            with pytest.raises(StoreUnavailable):
                await put(blobs, "blob_2", b"bytes", tmp_path)
            with pytest.raises(StoreUnavailable):
                await read(blobs, "blob_1", 0, 5)
            assert not await blobs.ready()
    assert outages() >= 2


async def test_an_unusable_folder_is_unavailable(tmp_path: Path, outages: Callable[[], int]) -> None:
    blobs = FolderBlobStore(tmp_path / "blobs")
    (tmp_path / "blobs").rmdir()
    with pytest.raises(StoreUnavailable):
        await put(blobs, "blob_1", b"bytes", tmp_path)
    (tmp_path / "blobs").touch()
    with pytest.raises(StoreUnavailable):
        await read(blobs, "blob_1", 0, 5)
    with pytest.raises(StoreUnavailable):
        await blobs.delete(["blob_1"])
    with pytest.raises(StoreUnavailable):
        await listed(blobs)
    assert outages() == 4


async def test_a_file_without_a_name_becomes_the_blob(tmp_path: Path) -> None:
    blobs = FolderBlobStore(tmp_path / "blobs")
    file = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR, 0o600)
    try:
        os.write(file, b"content")
        for key in ("first", "second"):
            await blobs.put(key, file)
        first, second = ((tmp_path / "blobs" / key).stat() for key in ("first", "second"))
        assert first.st_ino == os.fstat(file).st_ino != second.st_ino
        assert stat.S_IMODE(first.st_mode) == stat.S_IMODE(second.st_mode) == 0o400
    finally:
        os.close(file)
    assert [await read(blobs, key, 0, 7) for key in ("first", "second")] == [b"content"] * 2
    assert {path.name for path in (tmp_path / "blobs").iterdir()} == {"first", "second"}


@pytest.mark.parametrize("durable", [True, False])
async def test_durable_blobs_are_flushed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, durable: bool) -> None:
    blobs = open_blob_store(None, tmp_path / "blobs", durable=durable)
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(Path(f"/proc/self/fd/{file}").readlink().name))
    await put(blobs, "blob_1", b"bytes", tmp_path)
    assert await read(blobs, "blob_1", 0, 5) == b"bytes"
    assert len(flushed) == 2 * durable
    assert flushed[1:] == ["blobs"] * durable


def test_the_store_is_chosen_by_url(tmp_path: Path) -> None:
    assert isinstance(open_blob_store(None, tmp_path / "blobs"), FolderBlobStore)
    assert isinstance(open_blob_store("s3://bucket/prefix", tmp_path / "blobs"), S3BlobStore)


@pytest.mark.parametrize("name", ["shared", "shared%20files"])
async def test_a_file_url_is_a_folder(tmp_path: Path, name: str) -> None:
    blobs = open_blob_store(f"file://{tmp_path}/{name}", tmp_path / "blobs")
    await put(blobs, "blob_1", b"bytes", tmp_path)
    assert (tmp_path / unquote(name) / "blob_1").read_bytes() == b"bytes"
    assert not (tmp_path / "blobs").exists()


def test_the_s3_library_is_imported_only_for_s3(tmp_path: Path) -> None:
    script = "import sys, storage.blobs.blob_store as b, pathlib as p; b.open_blob_store(None, p.Path(sys.argv[1])); "
    script += "print('obstore' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


async def test_a_cancelled_list(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path / "blobs")
    for number in range(2000):
        (tmp_path / "blobs" / f"blob_{number:022}").touch()

    async def listed() -> None:
        async for _ in store.list(-1):
            pass

    for pause in range(20):
        task = asyncio.create_task(listed())
        await asyncio.sleep(pause / 5000)
        task.cancel()
        await asyncio.wait([task])


async def test_a_cancelled_read_closes_its_file(tmp_path: Path) -> None:
    store = FolderBlobStore(tmp_path / "blobs")
    await put(store, "blob_1", bytes(8 * BLOCK), tmp_path)
    before = descriptors()

    for pause in range(20):
        task = asyncio.create_task(read(store, "blob_1", 0, 8 * BLOCK))
        await asyncio.sleep(pause / 5000)
        task.cancel()
        await asyncio.wait([task])

    del task  # the traceback refers to the read bytes
    await asyncio.get_running_loop().shutdown_default_executor()  # waits for reads in progress
    assert descriptors() == before


async def test_blobs_that_are_put_at_the_same_time_share_a_flush_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No put returns before a flush has ended that began after its blob had its name."""
    folder, flush = tmp_path / "blobs", os.fsync
    blobs = open_blob_store(None, folder)
    flushed: list[set[str]] = []

    def slow_flush(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            names = {path.name for path in folder.iterdir()}
            time.sleep(0.05)
            flushed.append(names)
        flush(file)

    monkeypatch.setattr(os, "fsync", slow_flush)

    async def put(number: int) -> None:
        with (tmp_path / "content").open("rb") as file:
            await blobs.put(f"blob_{number}", file.fileno())
        assert any(f"blob_{number}" in names for names in flushed)

    (tmp_path / "content").write_bytes(b"content")
    await asyncio.gather(*(put(number) for number in range(12)))
    assert len(flushed) < 8
