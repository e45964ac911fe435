"""Webhooks beside bad receivers, while servers are killed, and with the Node.js library of the specification."""

import asyncio
import base64
import json
import random
import subprocess
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import monotonic, sleep, time

import pytest
from standardwebhooks import Webhook

from benchmarks.processes import ConvertdServer
from storage.database import Database
from storage.tables import deliveries
from tests.support.samples.storage import open_account
from tests.support.servers.in_process import eventually
from tests.support.servers.receiver import Received, Receiver, Send, reply
from tests.support.servers.webhook_sender import WebhookSender

pytestmark = pytest.mark.long

_DELAY = 2.0  # seconds that a message may wait because of others' receivers
_INTERVAL = 3.0  # seconds between kills
_REFUSED = 0.05  # of the messages
_NODE_LIBRARY = "standardwebhooks@1.1.1"
_VERIFY = """\
import { Webhook } from "standardwebhooks";
import { readFileSync } from "node:fs";
const { secret, headers, body } = JSON.parse(readFileSync(0, "utf8"));
console.log(JSON.stringify(new Webhook(secret).verify(body, headers)));
"""


@pytest.mark.both_databases
async def test_bad_receivers_delay_nobody_else(url: str, tmp_path: Path, seconds: float) -> None:
    """Accounts whose receivers hang, fail, redirect, are private, or have endless names, with thousands of messages.

    Each message of another account arrives within two seconds.
    """
    sender = WebhookSender(url, tmp_path / "outbox")
    bad = [open_account(sender.database).id for _ in range(6)]
    good = [open_account(sender.database).id for _ in range(5)]
    added: dict[str, float] = {}
    with Receiver(address="0.0.0.0") as hanging, Receiver(reply(500)) as failing, Receiver() as receiver:
        hanging.respond = hanging.hang
        with Receiver(reply(302, location=receiver.url)) as redirecting:
            for account, target in zip(bad, (hanging, hanging, failing, redirecting), strict=False):
                sender.add(account, f"http://127.0.0.1:{target.port}/", count=500)
            sender.add(bad[4], "http://10.0.0.1/", count=500)
            for number in range(1000):
                sender.add(bad[5], f"http://127.0.{1 + number // 250}.{1 + number % 250}:{hanging.port}/")
            async with sender.running():
                ends = monotonic() + seconds
                while monotonic() < ends:
                    account = random.choice(good)
                    path = f"/{len(added)}"
                    added[path] = time()
                    await sender.database.run(deliveries.add, account, "job.completed", dict, f"{receiver.url}{path}")
                    sender.deliveries.wake()
                    await asyncio.sleep(0.1)
                await sender.until(lambda: len(receiver.requests) >= len(added))
                hanging.stopped.set()
                sender.deliveries.close()
    late = [request.at - added[request.path] for request in receiver.requests]
    assert Counter(request.path for request in receiver.requests) == Counter(dict.fromkeys(added, 1))
    assert max(late) < _DELAY
    sender.close()


@pytest.mark.both_databases
def test_servers_are_killed_while_they_send(url: str, tmp_path: Path, seconds: float) -> None:
    """Two servers of one database, one of which is killed every three seconds: every message arrives."""
    settings = {"CONVERTD_DATABASE_URL": url, "CONVERTD_URL_ALLOW": "127.0.0.0/8"}
    database = Database(url)
    accounts = [open_account(database).id for _ in range(10)]
    received, tried = Counter[str](), set[str]()

    def respond(request: Received, send: Send) -> None:
        number = json.loads(request.body)["data"]["number"]
        sleep(random.random() / 5)
        refused = number not in tried and random.random() < _REFUSED  # once: the third attempt follows after minutes
        tried.add(number)
        received[number] += not refused
        reply(503 if refused else 204)(request, send)

    with (
        Receiver(respond) as receiver,
        ConvertdServer(tmp_path / "first", settings) as first,
        ConvertdServer(tmp_path / "second", settings) as second,
    ):
        ends, killed_at, number = monotonic() + seconds, monotonic(), 0
        while monotonic() < ends:
            describe = partial(dict[str, str], number=str(number))
            number += 1
            target = f"{receiver.url}/{number % 3}"
            database.run_blocking(deliveries.add, random.choice(accounts), "job.completed", describe, target)
            if monotonic() - killed_at > _INTERVAL:
                random.choice((first, second)).start()  # kills its process first
                killed_at = monotonic()
            sleep(0.02)
        assert eventually(lambda: received.total() >= number and len(+received) == number, 120)
        ids = Counter((json.loads(one.body)["data"]["number"], one.headers["webhook-id"]) for one in receiver.requests)
    database.close()
    assert len(ids) == number  # each message has one id, however often it was sent
    assert sum(received.values()) < 1.5 * number


def test_the_library_for_node_verifies_messages(tmp_path: Path) -> None:
    """Installs it from the registry of npm."""
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", _NODE_LIBRARY]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=120)
    (tmp_path / "verify.mjs").write_text(_VERIFY)
    secret, now = f"whsec_{base64.b64encode(bytes(range(32))).decode()}", datetime.now(UTC)
    body = '{"type":"job.completed","timestamp":"2026-11-23T12:00:00Z","data":{"tag":"größe"}}'
    signatures = [Webhook(one).sign("delivery_1", now, body) for one in (f"whsec_{'A' * 43}=", secret)]
    headers = {
        "webhook-id": "delivery_1",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": " ".join(signatures),
    }
    for content, verified in ((body, True), (body.replace("größe", "große"), False)):
        message = json.dumps({"secret": secret, "headers": headers, "body": content})
        done = subprocess.run(
            ["node", "verify.mjs"], cwd=tmp_path, input=message, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == verified, done.stderr
        assert not verified or json.loads(done.stdout) == json.loads(body)
