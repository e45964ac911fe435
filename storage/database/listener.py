"""The messages of PostgreSQL that servers send with `pg_notify`."""

import asyncio
import logging
from collections.abc import Callable

import psycopg
from psycopg import sql

from storage.database.connections import POSTGRESQL_OPTIONS

log = logging.getLogger("convertd.database")

_PAUSE = 1.0  # seconds before a lost connection is opened again


async def listen(url: str, channel: str, receive: Callable[[str], None]) -> None:
    """Calls `receive` with each message of a channel, on a connection of its own, until cancelled.

    Messages that are sent while the connection is lost are not received.
    """
    while True:
        try:
            connection = await psycopg.AsyncConnection.connect(url, autocommit=True, **POSTGRESQL_OPTIONS)
            async with connection:
                await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
                async for message in connection.notifies():
                    receive(message.payload)
        except psycopg.Error as error:
            log.warning("no messages of the database: %s", str(error).partition("\n")[0])
        await asyncio.sleep(_PAUSE)
