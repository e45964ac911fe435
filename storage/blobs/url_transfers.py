"""Blobs by URL: how a process that has no credentials of a blob store reads and writes single blobs of it."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from time import monotonic
from urllib.parse import unquote, urlsplit

import httpx

from storage.blobs.blob_store import FolderBlobStore
from storage.descriptors import BLOCK, read_blocks
from storage.errors import NotFound, StoreUnavailable

_CONNECT_TIMEOUT = 2.0  # seconds
_TIMEOUT = 5.0  # seconds without a response or progress
RETRY_TIMEOUT = 1.0  # seconds without a response, after one that took too long
_RETRY_PERIOD = 10.0  # seconds for which RETRY_TIMEOUT applies


class UrlTransfers:
    """Transfers blobs by URLs of `BlobStore.read_url` and `write_url`.

    Methods raise StoreUnavailable if the store fails, refuses the URL, or does not respond for `timeout` seconds. For a
    while after that, they wait for a second only: jobs that wait for a store keep others from running.
    """

    def __init__(self, timeout: float = _TIMEOUT) -> None:
        self._client = httpx.AsyncClient(headers={"Accept-Encoding": "identity"})
        self._timeout = timeout
        self._short_timeout_until = 0.0  # monotonic time

    async def close(self) -> None:
        """Closes the connections to the store."""
        await self._client.aclose()

    async def read(self, url: str, size: int) -> AsyncIterator[bytes]:
        """Yields the first `size` bytes of a blob, fewer if it is smaller. Raises NotFound."""
        if folder := _folder(url):
            async for block in folder.read(_path(url).name, 0, size):
                yield block
            return
        try:
            async with self._client.stream("GET", url, timeout=self._limits()) as response:
                _check(response)
                async for block in response.aiter_raw(BLOCK):
                    yield block[:size]
                    size -= len(block)
                    if size <= 0:
                        return
        except httpx.HTTPError as error:
            raise self._failed(error) from error

    async def write(self, url: str, file: int) -> None:
        """Stores a copy of the open file with this descriptor."""
        if folder := _folder(url):
            await folder.put(_path(url).name, file)
            return
        size = os.fstat(file).st_size
        headers = {"Content-Length": str(size)}  # S3 takes no chunked encoding
        try:
            content = read_blocks(file, 0, size)
            response = await self._client.put(url, content=content, headers=headers, timeout=self._limits())
        except httpx.HTTPError as error:
            raise self._failed(error) from error
        _check(response)

    def _limits(self) -> httpx.Timeout:
        seconds = min(self._timeout, RETRY_TIMEOUT) if monotonic() < self._short_timeout_until else self._timeout
        return httpx.Timeout(seconds, connect=min(seconds, _CONNECT_TIMEOUT))

    def _failed(self, error: httpx.HTTPError) -> StoreUnavailable:
        # Not prolonged by failures meanwhile: a store that is only slow must get its time again.
        if isinstance(error, httpx.TimeoutException) and monotonic() >= self._short_timeout_until:
            self._short_timeout_until = monotonic() + _RETRY_PERIOD
        return StoreUnavailable()


def _check(response: httpx.Response) -> None:
    if response.status_code == httpx.codes.NOT_FOUND:
        raise NotFound("file")
    if not response.is_success:
        raise StoreUnavailable(details={"status": response.status_code})


def _folder(url: str) -> FolderBlobStore | None:
    """The store of a file URL. The server that chose the URL makes blobs that it keeps durable."""
    return FolderBlobStore(_path(url).parent, durable=False, create=False) if url.startswith("file:") else None


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))
