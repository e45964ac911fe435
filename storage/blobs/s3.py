"""Blob store on S3-compatible object storage."""

import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage.blobs.blob_store import TIMEOUT, validate_key
from storage.descriptors import BLOCK, read_blocks, run_in_thread
from storage.errors import NotFound, StoreUnavailable

log = logging.getLogger("convertd.blobs")

_CONNECT_TIMEOUT = timedelta(seconds=2)
_TOTAL_TIMEOUT = timedelta(hours=1)  # a slow client may download for long
_RETRIES = 2
_PART = 5 << 20  # bytes of a part of an upload; a smaller file is one request instead of three


class S3BlobStore:
    """Blobs as objects below `s3://bucket/prefix`.

    Credentials, region and endpoint are read from the usual environment variables (AWS_ACCESS_KEY_ID etc.). The
    store has `timeout` seconds for each response, in which a part of 5 MiB is sent.
    """

    def __init__(self, url: str, *, timeout: float = TIMEOUT, clock: Callable[[], float] = time.time) -> None:
        read_timeout = timedelta(seconds=timeout)
        self._clock = clock
        self._store = S3Store.from_url(
            url,
            client_options={
                "allow_http": True,  # if the endpoint is an http URL
                "connect_timeout": _CONNECT_TIMEOUT,
                "read_timeout": read_timeout,
                "timeout": _TOTAL_TIMEOUT,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": read_timeout},
        )

    async def put(self, key: str, file: int) -> None:
        validate_key(key)
        size = os.fstat(file).st_size
        content = await run_in_thread(file, os.pread, size, 0) if size < _PART else read_blocks(file, 0, size)
        with _store_errors():
            await obstore.put_async(self._store, key, content, chunk_size=_PART)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        validate_key(key)
        with _store_errors():
            try:
                response = await obstore.get_async(self._store, key, options={"range": (start, end)})
            except FileNotFoundError:
                raise NotFound("file") from None
            async for block in response.stream(BLOCK):
                yield bytes(block)

    async def move(self, source: str, target: str) -> int:
        with _store_errors():
            try:
                await obstore.rename_async(self._store, validate_key(source), validate_key(target))
                return (await obstore.head_async(self._store, target))["size"]
            except FileNotFoundError:
                raise NotFound("file") from None

    async def read_url(self, key: str, seconds: float) -> str:
        return await obstore.sign_async(self._store, "GET", validate_key(key), timedelta(seconds=seconds))

    async def write_url(self, key: str, seconds: float) -> str:
        return await obstore.sign_async(self._store, "PUT", validate_key(key), timedelta(seconds=seconds))

    async def delete(self, keys: Iterable[str]) -> None:
        with _store_errors():
            await obstore.delete_async(self._store, [validate_key(key) for key in keys])

    async def list(self, older_than: int) -> AsyncIterator[str]:
        until = self._clock() - older_than
        with _store_errors():
            async for page in obstore.list(self._store):
                for entry in page:
                    if entry["last_modified"].timestamp() <= until:
                        yield entry["path"]

    async def ready(self) -> bool:
        try:
            with _store_errors():
                await obstore.put_async(self._store, "ready", b"")  # deleted by the sweep of unreferenced keys
        except StoreUnavailable:
            return False
        return True


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except (BaseError, FileNotFoundError) as error:  # FileNotFoundError if there is no such bucket
        log.warning("blob store failed: %s", str(error).partition("\n")[0], extra={"outage": True})
        raise StoreUnavailable from error
