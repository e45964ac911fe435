"""Messages that servers of one PostgreSQL send to each other about jobs."""

import asyncio
import logging

import pytest

from storage.database import Database, Transaction
from tests.conftest import MakeUrl
from web.services.jobs.job_changes import CHANGED, QUEUED, ServerMessages


async def test_messages_are_sent_together(new_postgres_url: MakeUrl, caplog: pytest.LogCaptureFixture) -> None:
    """Each once: many jobs are accepted at a time, and one message tells other servers to look for them."""
    url = new_postgres_url()
    mine, others = Database(url), Database(url)
    sent = {(QUEUED, ""), *((CHANGED, f"job_{number}") for number in range(300))}
    heard: list[tuple[str, ...]] = []
    complete = asyncio.Event()

    def hear(*message: str) -> None:
        heard.append(message)
        if sent <= {*heard}:
            complete.set()

    sender, receiver = ServerMessages(mine), ServerMessages(others)
    async with asyncio.TaskGroup() as tasks, asyncio.timeout(30):
        running = [tasks.create_task(sender.run(lambda *_: None)), tasks.create_task(receiver.run(hear))]
        with caplog.at_level(logging.DEBUG, "peewee"):
            while not heard:  # until the receiver listens
                sender.send(QUEUED)
                await asyncio.sleep(0.01)
            heard.clear()
            caplog.clear()
            for message in sorted(sent) * 2:
                sender.send(*message)
            await complete.wait()
        for task in running:
            task.cancel()
    statements = [record for record in caplog.records if "pg_notify" in str(record.msg)]
    assert len(statements) <= 3
    assert len(heard) <= len(sent) + 2
    for database in (mine, others):
        database.close()


def test_transactions_send_no_messages(new_postgres_url: MakeUrl) -> None:
    """PostgreSQL lets the commits of such transactions wait for each other."""
    database = Database(new_postgres_url())

    def triggers(transaction: Transaction) -> list[tuple[str, ...]]:
        query = "SELECT proname FROM pg_proc WHERE pronamespace = current_schema()::regnamespace AND prosrc LIKE %s"
        return list(transaction.connection.execute_sql(query, ("%pg_notify%",)).fetchall())

    assert database.run_blocking(triggers) == []
    database.close()
