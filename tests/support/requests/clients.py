"""Calls the synchronous and the asynchronous client in the same way."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import isasyncgen
from typing import Any

from convertd_client import AsyncClient, Client

KINDS = ("Client", "AsyncClient")


class _Waiting:
    """An AsyncClient with blocking calls."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = getattr(self._client, name)

        async def done(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            return [one async for one in result] if isasyncgen(result) else await result

        return lambda *args, **kwargs: self._runner.run(done(*args, **kwargs))


@contextmanager
def calling(kind: str, url: str, key: str, **options: Any) -> Iterator[Any]:
    """A client of that kind."""
    if kind == "Client":
        with Client(url, key, **options) as client:
            yield client
        return
    with asyncio.Runner() as runner:
        waiting = AsyncClient(url, key, **options)
        yield _Waiting(waiting, runner)
        runner.run(waiting.close())
