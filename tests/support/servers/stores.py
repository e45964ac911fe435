"""The stores that several servers can share: PostgreSQL, S3 and Redis."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import RedisServer
from tests.support.servers.s3_server import S3Server


@contextmanager
def shared_stores(folder: Path, database_url: str, store: S3Server) -> Iterator[dict[str, Any]]:
    """The settings of a server that uses these stores."""
    with RedisServer(folder) as redis, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield {"database_url": database_url, "redis_url": redis.url, "blob_url": store.url("web")}
