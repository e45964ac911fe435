"""Answers the requests of a task to the network."""

import asyncio
import socket
from contextlib import suppress

from pydantic import TypeAdapter

from engine.network import MAX_BYTES, MAX_REQUESTS, MAX_SENT, Fetch, WebRequest, encode

_MAX_BODY = 16 << 20  # bytes of a response
_MAX_LINE = 2 * MAX_SENT  # bytes of a request in JSON, whose body is in Base64
_AT_A_TIME = 8
_REQUEST_SECONDS = 20.0


async def serve(connection: socket.socket, fetch: Fetch) -> None:
    """Answers the requests of a task, which are untrusted, until it closes the connection or sends nonsense."""
    reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_MAX_LINE)
    turns = asyncio.Semaphore(_AT_A_TIME)
    answers: set[asyncio.Task[None]] = set()
    left = MAX_BYTES
    requests = TypeAdapter(WebRequest)

    async def answer(request: WebRequest) -> None:
        nonlocal left
        async with turns:
            response = await fetch(request, min(left, _MAX_BODY), _REQUEST_SECONDS)
            left -= len(response.body)
            with suppress(ConnectionError):
                writer.write(encode(response))
                await writer.drain()

    try:
        for _ in range(MAX_REQUESTS):
            task = asyncio.create_task(answer(requests.validate_json(await reader.readline())))
            answers.add(task)
            task.add_done_callback(answers.discard)
        await asyncio.gather(*answers)
    except (ConnectionError, ValueError):  # also the end of the connection, and a line that is too long
        pass
    finally:
        for task in answers:
            task.cancel()
        writer.close()
