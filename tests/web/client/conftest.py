from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.requests.clients import KINDS, calling
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: Running) -> Iterator[Any]:
    with calling(request.param, server.url, server.account(20, purchased=1)) as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "photo.heic").write_bytes(sample("heic"))
    (tmp_path / "page.pdf").write_bytes(sample("pdf"))
    (tmp_path / "bad.png").write_bytes(sample("png")[:100])
    (tmp_path / "text.png").write_bytes(b"no image at all")
    return tmp_path
