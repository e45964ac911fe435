"""Generates load: reads a Plan as JSON from standard input, and prints the answers as JSON.

It works on bare sockets, as what it takes of the machine is missing to the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle, islice
from selectors import EVENT_READ, EVENT_WRITE, DefaultSelector
from time import monotonic

from benchmarks.faults.connections import PATIENCE, Client, Connection
from benchmarks.faults.pressure import Heard, Plan


class _Load:
    """Requests on their way; `then` is called with the client of each that has ended."""

    def __init__(self, then: Callable[[Client], None] = lambda _: None) -> None:
        self.heard: list[Heard] = []
        self._then = then
        self._selector = DefaultSelector()
        self._asking: dict[Connection, None] = {}  # in the order in which they have asked

    def ask(self, client: Client) -> None:
        """Makes the client's request."""
        asked, connection = monotonic(), None
        try:
            connection = client.connection()
            connection.ask()
        except OSError:
            self._end(client, Heard(0, asked, monotonic()))
            return
        self._asking[connection] = None
        self._selector.register(connection.socket, connection.awaited(), connection)

    def go_on(self, until: float) -> None:
        """Sends and takes what can be sent and taken, and waits for it until then at most."""
        for key, events in self._selector.select(max(0.0, until - monotonic())):
            self._advance(key.data, events)
        oldest = next(iter(self._asking), None)
        if oldest is not None and monotonic() - oldest.asked > PATIENCE:
            self._give_up(oldest)

    def finish(self) -> list[Heard]:
        """Waits for what is on its way, and gives all answers."""
        while self._asking:
            self.go_on(monotonic() + 1)
        return self.heard

    def _advance(self, connection: Connection, events: int) -> None:
        try:
            if events & EVENT_WRITE:
                connection.send()
                self._selector.modify(connection.socket, connection.awaited(), connection)
            answer = connection.take() if events & EVENT_READ else None
        except (OSError, EOFError):
            self._give_up(connection)
            return
        if answer is not None:
            heard, keep = answer
            self._leave(connection, keep=keep)
            self._end(connection.client, heard)

    def _give_up(self, connection: Connection) -> None:
        self._leave(connection, keep=False)
        self._end(connection.client, Heard(0, connection.asked, monotonic()))

    def _leave(self, connection: Connection, *, keep: bool) -> None:
        del self._asking[connection]
        self._selector.unregister(connection.socket)
        # One that has not sent all of its request cannot send another.
        if keep and connection.awaited() == EVENT_READ:
            connection.client.idle.append(connection)
        else:
            connection.socket.close()

    def _end(self, client: Client, heard: Heard) -> None:
        self.heard.append(heard)
        self._then(client)


def _at_rate(clients: list[Client], plan: Plan) -> list[Heard]:
    load, turns, asked, began = _Load(), cycle(clients), 0, monotonic()
    while (now := monotonic()) < began + plan.seconds:
        if now < (due := began + asked / plan.rate):
            load.go_on(due)
        else:
            load.ask(next(turns))
            asked += 1
    return load.finish()


def _in_turn(clients: list[Client], plan: Plan) -> list[Heard]:
    end = monotonic() + plan.seconds

    def again(client: Client) -> None:
        if monotonic() < end:
            load.ask(client)

    load = _Load(again)
    for client in islice(cycle(clients), plan.clients):
        load.ask(client)
    return load.finish()


def _main() -> None:
    plan = Plan(**json.load(sys.stdin))
    clients = [Client(number, plan) for number in range(len(plan.keys))]
    answers = (_in_turn if plan.clients else _at_rate)(clients, plan)
    json.dump([list(asdict(answer).values()) for answer in answers], sys.stdout)


if __name__ == "__main__":
    _main()
