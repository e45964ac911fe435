"""Connections that are listened to together."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from web.moderation import Moderation

_PAUSE = 0.05  # seconds
_MANY = 10


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    """Connected sockets: ours, and the client's."""
    with ExitStack() as opened:
        made = [socket.socketpair() for _ in range(_MANY)]
        for pair in made:
            for end in pair:
                opened.enter_context(end)
        yield made


def test_those_with_something_to_say_are_called_together_at_the_next_moment(
    pairs: list[tuple[socket.socket, socket.socket]],
) -> None:
    async def told() -> tuple[list[int], list[int]]:
        moderation, called, done = Moderation(0.5), list[int](), asyncio.Event()

        def ready(descriptor: int) -> bool:
            called.append(descriptor)
            done.set()
            return False

        for ours, _ in pairs:
            moderation.wait(ours.fileno(), partial(ready, ours.fileno()))
        for _, client in pairs[:-1]:
            client.send(b"!")
        await asyncio.sleep(0.1)
        before = list(called)
        await done.wait()
        moderation.close()
        return before, called

    before, called = asyncio.run(told())
    assert before == []
    assert sorted(called) == sorted(ours.fileno() for ours, _ in pairs[:-1])


def test_each_is_called_until_it_goes_on_no_more(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    async def told() -> list[str]:
        moderation, called = Moderation(_PAUSE), list[str]()
        (first, client), (second, other) = pairs[:2]

        def read() -> bool:
            called.append(first.recv(1).decode())
            return called[-1] != "!"

        moderation.wait(first.fileno(), read)
        moderation.wait(first.fileno(), partial(_noted, called, "first, again"))
        moderation.wait(second.fileno(), partial(_noted, called, "second"))
        for sent in b"?!":
            client.send(bytes([sent]))
            await asyncio.sleep(3 * _PAUSE)
        client.send(b"too late")
        other.close()  # the end is something to read, too
        await asyncio.sleep(3 * _PAUSE)
        moderation.close()
        return called

    assert asyncio.run(told()) == ["?", "!", "second"]


def test_who_is_forgotten_is_not_called(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    async def told() -> list[str]:
        moderation, called = Moderation(_PAUSE), list[str]()
        ours, client = pairs[0]
        with ours.dup():  # which keeps what the selector knows of it
            moderation.wait(ours.fileno(), partial(_noted, called, "closed"))
            moderation.forget(ours.fileno())
            moderation.forget(ours.fileno())
            ours.close()
            client.send(b"!")
            await asyncio.sleep(3 * _PAUSE)
        moderation.close()
        return called

    assert asyncio.run(told()) == []


def test_there_is_no_rest_where_nobody_waits(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    async def timers() -> list[bool]:
        moderation = Moderation(_PAUSE)
        ours, client = pairs[0]
        found = [moderation._timer is not None]
        moderation.wait(ours.fileno(), lambda: False)
        found.append(moderation._timer is not None)
        client.send(b"!")
        await asyncio.sleep(3 * _PAUSE)
        found.append(moderation._timer is not None)
        moderation.close()
        return found

    assert asyncio.run(timers()) == [False, True, False]


def _noted(called: list[str], who: str) -> bool:
    called.append(who)
    return False
