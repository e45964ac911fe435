"""Generates load: reads a Plan as JSON from standard input, and prints the answers as JSON.

It works on bare sockets, as what it takes of the machine is missing to the server.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from itertools import cycle, islice
from select import EPOLLIN, EPOLLOUT, epoll
from time import monotonic

from benchmarks.faults.connections import PATIENCE, Client, Connection
from benchmarks.faults.pressure import Heard, Plan


class _Load:
    """Requests on their way; `then` is called with the client of each that has ended."""

    def __init__(self, then: Callable[[Client], None] = lambda _: None) -> None:
        self.heard: list[Heard] = []
        self._then = then
        self._epoll = epoll()
        self._connections: dict[int, Connection] = {}  # by descriptor: those that are listened to
        self._asking: dict[Connection, None] = {}  # in the order in which they have asked

    def ask(self, client: Client) -> None:
        """Makes the client's request."""
        asked = monotonic()
        try:
            connection = client.connection()
            connection.ask()
        except OSError:
            self._end(client, Heard(0, asked, monotonic()))
            return
        self._asking[connection] = None
        self._listen(connection)

    def go_on(self, until: float) -> None:
        """Sends and takes what can be sent and taken, and waits for it until then at most."""
        for descriptor, events in self._epoll.poll(max(0.0, until - monotonic())):
            self._advance(self._connections[descriptor], events)
        oldest = next(iter(self._asking), None)
        if oldest is not None and monotonic() - oldest.asked > PATIENCE:
            self._give_up(oldest)

    def finish(self) -> list[Heard]:
        """Waits for what is on its way, and gives all answers."""
        while self._asking:
            self.go_on(monotonic() + 1)
        return self.heard

    def _listen(self, connection: Connection) -> None:
        descriptor, awaited = connection.socket.fileno(), connection.awaited()
        if self._connections.get(descriptor) is not connection:
            self._connections[descriptor] = connection
            self._epoll.register(descriptor, awaited)
        elif awaited != connection.listened:
            self._epoll.modify(descriptor, awaited)
        connection.listened = awaited

    def _advance(self, connection: Connection, events: int) -> None:
        if connection not in self._asking:  # the server has closed it while it was idle
            self._close(connection)
            return
        try:
            if events & EPOLLOUT:
                connection.send()
                self._listen(connection)
            answer = connection.take() if events & ~EPOLLOUT else None
        except (OSError, EOFError):
            self._give_up(connection)
            return
        if answer is not None:
            heard, keep = answer
            del self._asking[connection]
            # One that has not sent all of its request cannot send another.
            if keep and connection.awaited() == EPOLLIN:
                connection.client.idle.append(connection)
            else:
                self._close(connection)
            self._end(connection.client, heard)

    def _give_up(self, connection: Connection) -> None:
        del self._asking[connection]
        self._close(connection)
        self._end(connection.client, Heard(0, connection.asked, monotonic()))

    def _close(self, connection: Connection) -> None:
        self._connections.pop(connection.socket.fileno(), None)
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
