"""Fixtures: a sender of messages, and a receiver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.in_process import Running, Servers
from tests.support.servers.receiver import Receiver
from tests.support.servers.webhook_sender import LOOPBACK, WebhookSender


@pytest.fixture(scope="module")
def server(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server that may send messages to this machine."""
    with servers.running(tmp_path_factory.mktemp("data"), url_allow=LOOPBACK, rate_limit_free=1000) as running:
        yield running


@pytest.fixture
def sender(url: str, tmp_path: Path) -> Iterator[WebhookSender]:
    sender = WebhookSender(url, tmp_path / "outbox")
    yield sender
    sender.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
