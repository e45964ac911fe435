"""Stores that several servers can share: an S3-compatible one on a free port, and PostgreSQL and Redis beside it."""

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.processes import RedisServer, ServerProcess

_BUCKET = "convertd-tests"
# Like moto's own command, without the packages of its other services.
_PROGRAM = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
run_simple("127.0.0.1", int(sys.argv[1]), DomainDispatcherApplication(create_backend_app), threaded=True)
"""


class S3Server(ServerProcess):
    """The store, with a bucket."""

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment variables of its clients."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
        }

    def url(self, prefix: str) -> str:
        """A URL in its bucket."""
        return f"s3://{_BUCKET}/{prefix}"

    def requests(self) -> Counter[str]:
        """The numbers of requests by method since its start."""
        return Counter(re.findall(r'"(?:\x1b\[\d+m)*([A-Z]+) /\S* HTTP/', self.log()))

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", _PROGRAM, str(self.port)]

    def answers(self) -> bool:
        try:
            return httpx.put(f"{self.environment['AWS_ENDPOINT_URL']}/{_BUCKET}").is_success
        except httpx.TransportError:
            return False


@contextmanager
def shared_stores(folder: Path, database_url: str, store: S3Server) -> Iterator[dict[str, Any]]:
    """The settings of a server that uses these stores."""
    with RedisServer(folder) as redis, pytest.MonkeyPatch.context() as patch:
        for name, value in store.environment.items():
            patch.setenv(name, value)
        yield {"database_url": database_url, "redis_url": redis.url, "blob_url": store.url("web")}
