"""Fixtures: a sender of messages, and a receiver."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers.receiver import Receiver
from tests.support.servers.webhook_sender import WebhookSender


@pytest.fixture
def sender(url: str, tmp_path: Path) -> Iterator[WebhookSender]:
    sender = WebhookSender(url, tmp_path / "outbox")
    yield sender
    sender.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as running:
        yield running
