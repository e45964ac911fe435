"""The messages between servers and workers of a cluster: jobs, their results, and the state of an installation.

They have names, keys of blobs, options and limits. Files of at most MAX_INLINE bytes are part of a message, larger ones
are in the blob store.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Self

from config.settings import Settings
from engine.errors import ExecutorUnavailable
from engine.executor import Job, JobLimits, JobResult
from engine.registry import Registry
from storage.blobs.blob_store import BlobStore
from storage.descriptors import run_in_thread
from storage.errors import NotFound
from web.services.catalogue import formats_catalogue, tools_catalogue

MAX_INLINE = 1 << 20
"""Bytes of all files in one message."""


@dataclass(frozen=True)
class Installation:
    """What a server and a worker must have in common: the version, the catalogue and the blob store.

    `catalogue` and `blob_store` are digests.
    """

    version: str
    catalogue: str
    blob_store: str

    @classmethod
    def of(cls, registry: Registry, settings: Settings) -> Self:
        """Describes this process."""
        plugins = {plugin.name: plugin.version for plugin in registry.plugins}
        catalogue = {**formats_catalogue(registry), **tools_catalogue(registry), "plugins": plugins}
        url = settings.blob_url.get_secret_value() if settings.blob_url else ""
        return cls(version("convertd"), _digest(json.dumps(catalogue, sort_keys=True)), _digest(url))

    @property
    def resource(self) -> str:
        """The name of the Dask resource whose quantity is the number of jobs that a worker can run at a time.

        Jobs of this installation need one, so that no worker of another installation receives them.
        """
        return f"convertd {self.version} {self.catalogue} {self.blob_store}"

    def difference(self, other: Mapping[str, object]) -> str | None:
        """Returns the first property that differs, as a noun; None if there is none.

        `other` has the values of an installation by name; that of another version may have other names.
        """
        for name, value in asdict(self).items():
            if other.get(name) != value:
                return {"catalogue": "set of plugins or formats"}.get(name, name.replace("_", " "))
        return None


@dataclass(frozen=True)
class FileContent:
    """A file of `size` bytes: its `data`, or the `key` of its blob."""

    size: int
    data: bytes | None = None
    key: str = ""


@dataclass(frozen=True)
class ClusterJob:
    """A job of an account. `id` is the key of its Dask task, `output` the key of the blob for a large result."""

    id: str
    installation: Installation
    job: Job
    account: str
    limits: JobLimits
    inputs: tuple[FileContent, ...]
    output: str


@dataclass(frozen=True)
class ClusterResult:
    """The result of a job and its file."""

    result: JobResult
    file: FileContent


class OtherInstallation(ExecutorUnavailable):
    """The worker has another version, other plugins or another blob store than the server of the job."""


async def send_file(blobs: BlobStore, descriptor: int, key: str, max_inline: int = MAX_INLINE) -> FileContent:
    """Returns the content of an open file, which is stored under `key` if it has more than `max_inline` bytes.

    Raises StoreUnavailable.
    """
    size = os.fstat(descriptor).st_size
    if size <= max_inline:
        return FileContent(size, data=await run_in_thread(descriptor, os.pread, size, 0))
    await blobs.put(key, descriptor)
    return FileContent(size, key=key)


async def receive_file(blobs: BlobStore, content: FileContent) -> AsyncIterator[bytes]:
    """Yields the bytes of a file. Raises NotFound, also if its blob is too short, and StoreUnavailable."""
    if content.data is not None:
        yield content.data
        return
    received = 0
    async for block in blobs.read(content.key, 0, content.size):
        received += len(block)
        yield block
    if received != content.size:
        raise NotFound("file")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
