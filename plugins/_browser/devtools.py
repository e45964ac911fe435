"""The Chrome DevTools Protocol over a pair of pipes: commands, their results, and events."""

from __future__ import annotations

import json
import os
import select
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from engine import MessageReader, StepFailed, WorkerCrashed

_MESSAGE_END = b"\0"


class Event(NamedTuple):
    """What the browser reports, in the `session` of a page or worker; empty if it is about the browser."""

    method: str
    params: Mapping[str, Any]
    session: str


class DevTools:
    """A connection to a browser. `reading` and `writing` are descriptors of pipes, which the caller closes."""

    def __init__(self, reading: int, writing: int) -> None:
        self._reading = reading
        self._writing = writing
        self._reader = MessageReader(reading, _MESSAGE_END)
        self._results: dict[int, dict[str, Any] | None] = {}  # by command, if it is wanted
        self.events = deque[Event]()
        """Those that were received, and are yet to be handled."""
        self._number = 0

    def ask(self, method: str, session: str = "", **params: Any) -> int:
        """Sends a command, to the browser or to the page of a session. Returns the number of its `result`."""
        self._results[self._number + 1] = None
        return self.send(method, session, **params)

    def send(self, method: str, session: str = "", **params: Any) -> int:
        """Sends a command whose result is dropped. Returns its number."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        text = json.dumps(message | ({"sessionId": session} if session else {})).encode() + _MESSAGE_END
        view = memoryview(text)
        try:
            while view:
                view = view[os.write(self._writing, view) :]
        except OSError as error:
            raise WorkerCrashed("The browser has crashed.") from error
        return self._number

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """Sends a command and returns its result; events meanwhile are kept. Raises StepFailed and WorkerCrashed."""
        return self.wait_for(self.ask(method, session, **params))

    def wait_for(self, number: int) -> dict[str, Any]:
        """Waits for the result of a command. Raises StepFailed and WorkerCrashed."""
        while (result := self.result(number)) is None:
            self.wait()
        return result

    def result(self, number: int) -> dict[str, Any] | None:
        """The result of a command; None if it is not there yet. Raises StepFailed if the browser refused it."""
        if (message := self._results[number]) is None:
            return None
        del self._results[number]
        if "error" in message:
            raise StepFailed(f"The browser refused a command: {message['error'].get('message')}.")
        result: dict[str, Any] = message["result"]
        return result

    def wait(self, seconds: float | None = None, *others: int) -> list[int]:
        """Waits until the browser has sent something, or one of the other descriptors is readable.

        Returns those of the others that are. Raises WorkerCrashed if the browser has ended.
        """
        ready, _, _ = select.select([self._reading, *others], [], [], seconds)
        if self._reading in ready:
            self._receive()
        return [one for one in ready if one != self._reading]

    def _receive(self) -> None:
        try:
            messages = [json.loads(text) for text in self._reader.read()]
        except ConnectionResetError as error:
            raise WorkerCrashed("The browser has crashed.") from error
        for message in messages:
            if message.get("id") in self._results:
                self._results[message["id"]] = message
            elif "method" in message:
                self.events.append(Event(message["method"], message["params"], message.get("sessionId", "")))
