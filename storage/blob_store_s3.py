"""Blobs in a store that speaks S3."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from storage.blob_store import BLOCK, checked, regular
from storage.errors import NotFound, StoreUnavailable

log = logging.getLogger("convertd.blobs")

_CONNECT = timedelta(seconds=2)
_PATIENCE = 10.0  # seconds that the store may be silent, while it is sent a part of 5 MiB too
_WHOLE = timedelta(hours=1)  # of a download by a slow client
_RETRIES = 2


class S3BlobStore:
    """Blobs as objects below `s3://bucket/prefix`.

    Credentials, region and endpoint come from the variables that other S3 clients read, AWS_ACCESS_KEY_ID and
    so on. Methods raise StoreUnavailable when the store fails, or is silent for `patience` seconds.
    """

    def __init__(self, url: str, *, patience: float = _PATIENCE, clock: Callable[[], float] = time.time) -> None:
        silence = timedelta(seconds=patience)
        self._clock = clock
        self._store = S3Store.from_url(
            url,
            client_options={
                "allow_http": True,  # where the endpoint says so
                "connect_timeout": _CONNECT,
                "read_timeout": silence,
                "timeout": _WHOLE,
            },
            retry_config={"max_retries": _RETRIES, "retry_timeout": silence},
        )

    async def put(self, key: str, path: Path) -> None:
        checked(key)
        await asyncio.to_thread(regular, path)
        with _store_errors():
            await obstore.put_async(self._store, key, path)

    async def fetch(self, key: str, path: Path) -> None:
        file = await asyncio.to_thread(path.open, "wb")
        try:
            async for block in self._blocks(key, {}):
                await asyncio.to_thread(file.write, block)
        finally:
            await asyncio.to_thread(file.close)

    async def read(self, key: str, start: int, end: int) -> AsyncIterator[bytes]:
        async for block in self._blocks(key, {"range": (start, end)}):
            yield block

    async def delete(self, keys: Iterable[str]) -> None:
        with _store_errors():
            await obstore.delete_async(self._store, [checked(key) for key in keys])

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
                await obstore.put_async(self._store, "ready", b"")  # no file refers to it: it gets swept
        except StoreUnavailable:
            return False
        return True

    async def close(self) -> None:
        """Connections go with the last reference to the store."""

    async def _blocks(self, key: str, options: obstore.GetOptions) -> AsyncIterator[bytes]:
        checked(key)
        with _store_errors():
            try:
                found = await obstore.get_async(self._store, key, options=options)
            except FileNotFoundError:
                raise NotFound("file") from None
            async for block in found.stream(BLOCK):
                yield bytes(block)


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except (BaseError, FileNotFoundError) as error:  # FileNotFoundError where there is no such bucket
        log.warning("the store of the blobs fails: %s", str(error).partition("\n")[0])
        raise StoreUnavailable from error
