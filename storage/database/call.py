"""Call: a function that waits for its transaction, runs in it, and can be abandoned by its caller meanwhile."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Generic, TypeVar

from storage.database.transaction import BY_ACCOUNT, MODE, Mode, Transaction

R = TypeVar("R")


class Call(Generic[R]):
    """A function to run in a transaction. `future` receives its result or its error, and is cancelled with the call.

    Calls of one `group` may share a transaction. `expired` is set when the caller no longer waits for the call.
    """

    def __init__(self, function: Callable[..., R], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._function = function
        self._args = args
        self._kwargs = kwargs
        self.mode: Mode = getattr(function, MODE, Mode.SYNCED)
        self.group: str | None = args[0] if hasattr(function, BY_ACCOUNT) else None
        self.future: Future[R] = Future()
        self.expired = False
        self._lock = threading.Lock()
        self._running = False
        self._connection: socket.socket | None = None  # on which the function runs

    def run(self, transaction: Transaction) -> R:
        """Runs the function."""
        return self._function(transaction, *self._args, **self._kwargs)

    @contextmanager
    def running(self, descriptor: int | None = None) -> Iterator[bool]:
        """The block in which the function runs, on the connection with this descriptor; False if it was cancelled."""
        with ExitStack() as stack:
            # A duplicate: libraries close the descriptors of lost connections.
            connection = descriptor and stack.enter_context(socket.socket(fileno=os.dup(descriptor)))
            with self._lock:
                self._running = not self.future.cancelled()
                self._connection = connection or None
            try:
                yield self._running
            finally:
                with self._lock:
                    self._running = False
                    self._connection = None

    def cancel(self) -> bool:
        """Cancels the call unless the function is running. Returns whether it will not run, or not once more."""
        with self._lock:
            return not self._running and self.future.cancel()

    def expire(self) -> None:
        """Cancels the call. If the function is running, cuts its connection off, so that its transaction fails soon.

        Without a descriptor, as with SQLite, a running function ends by itself.
        """
        self.expired = True
        if self.cancel():
            return
        with self._lock, suppress(OSError):
            if self._connection is not None:
                self._connection.shutdown(socket.SHUT_RDWR)

    def finish(self, result: R) -> None:
        """Passes the result to the caller, unless the call was cancelled."""
        with self._lock:
            if not self.future.cancelled():
                self.future.set_result(result)

    def fail(self, error: BaseException) -> None:
        """Passes the error to the caller, unless the call was cancelled."""
        with self._lock:
            if not self.future.cancelled():
                self.future.set_exception(error)
