"""Clients that send requests of all kinds while something fails, and what they were told."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any

import httpx

from tests.support.servers.load import image, is_image

_SIZE = (300, 200)
_BATCH = 12  # files, more than an account converts at a time
_TIMEOUT = 90.0  # seconds, longer than any answer may take
_SUCCESS_TIMEOUT = 240.0  # seconds, longer than any outage
_PAUSE = 0.3  # seconds before a request is repeated
_NO_ERROR: Mapping[str, Any] = {}


@dataclass(frozen=True)
class Answer:
    """The answer to a request, after some seconds. The status is 0 if the connection failed."""

    request: str
    status: int
    seconds: float
    content: bytes = field(repr=False, default=b"")
    error: Mapping[str, Any] = field(default_factory=dict)
    retry_after: int = 0

    @property
    def may_be_repeated(self) -> bool:
        """Whether the answer tells that the request may be repeated, or there was no answer."""
        return not self.status or bool(self.error.get("retryable"))


class _Failed(Exception):
    """A request failed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


class MixedClients:
    """Clients of an account that convert: once, with a key until it succeeds, from stored files, and in batches.

    `answers` are all that were received. `converted` is the number of conversions that succeeded for the clients, and
    `unknown` that of conversions without a key whose answer does not tell whether they were charged.
    """

    def __init__(self, api: str, key: str) -> None:
        self._api = api
        self._authorization = {"Authorization": f"Bearer {key}"}
        self._content = image(_SIZE)
        self._keys = count()
        self.answers: list[Answer] = []
        self.converted = 0
        self.unknown = 0
        self.wrong_results = 0

    async def send_while(self, work: Awaitable[Any]) -> None:
        """Sends requests of all kinds until the work is done, and completes those that are repeated."""
        task = asyncio.ensure_future(work)
        async with httpx.AsyncClient(timeout=_TIMEOUT, verify=False) as client:

            async def repeat(kind: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
                while not task.done():
                    try:
                        async with asyncio.timeout(_SUCCESS_TIMEOUT):
                            await kind(client)
                    except _Failed:
                        await asyncio.sleep(_PAUSE)

            once, keyed = self._convert_once, self._convert_with_key
            kinds = (once, once, keyed, keyed, self._convert_stored, self._convert_batch, self._read_account)
            await asyncio.gather(*(repeat(kind) for kind in kinds))
        await task

    async def _convert_once(self, client: httpx.AsyncClient) -> None:
        self._check(await self._converted(client, "POST", "/convert", **self._form()))

    async def _convert_with_key(self, client: httpx.AsyncClient) -> None:
        headers = {"Idempotency-Key": self._new_key()}
        self._check(await self._until_it_succeeds(client, "POST", "/convert", 1, headers=headers, **self._form()))
        self.converted += 1

    async def _convert_stored(self, client: httpx.AsyncClient) -> None:
        file = await self._uploaded(client, "/files/upload")
        target = {"output_format": "webp"}
        await self._converted(client, "POST", f"/files/{file}/convert", json=target)
        self._check(await self._until_it_succeeds(client, "GET", f"/files/{file}/download"))
        await self._once(client, "DELETE", f"/files/{file}")

    async def _convert_batch(self, client: httpx.AsyncClient) -> None:
        created = await self._once(client, "POST", "/batch", json={"output_format": "webp"})
        batch = _data(created)["batch_id"]
        files = [await self._uploaded(client, f"/batch/{batch}/files") for _ in range(_BATCH)]
        body = {"headers": {"Idempotency-Key": self._new_key()}, "json": {"file_ids": files, "output_format": "webp"}}
        done = await self._until_it_succeeds(client, "POST", f"/batch/{batch}/convert", _BATCH, **body)
        results = _data(done)["results"]
        errors = [result["error"]["code"] for result in results if result["status"] == "failed"]
        self.converted += len(results) - len(errors)
        self.unknown += errors.count("server_error")

    async def _read_account(self, client: httpx.AsyncClient) -> None:
        await self._once(client, "GET", "/account")
        await asyncio.sleep(_PAUSE)

    async def _uploaded(self, client: httpx.AsyncClient, path: str) -> str:
        answer = await self._once(client, "POST", path, files={"file": ("a.png", self._content)})
        return str(_data(answer)["file_id"])

    async def _converted(self, client: httpx.AsyncClient, method: str, path: str, **body: Any) -> Answer:
        """The answer to a conversion without a key. Raises _Failed."""
        try:
            answer = await self._once(client, method, path, **body)
        except _Failed as failed:
            self.unknown += failed.answer.error.get("code") == "server_error"
            raise
        self.converted += 1
        return answer

    async def _until_it_succeeds(
        self, client: httpx.AsyncClient, method: str, path: str, conversions: int = 0, **request: Any
    ) -> Answer:
        """Repeats a request for this number of conversions. Raises _Failed if an answer forbids that."""
        while True:
            try:
                return await self._once(client, method, path, **request)
            except _Failed as failed:
                if not failed.answer.may_be_repeated:
                    self.unknown += conversions
                    raise
            await asyncio.sleep(_PAUSE)

    async def _once(self, client: httpx.AsyncClient, method: str, path: str, **request: Any) -> Answer:
        """Sends a request. Raises _Failed unless it succeeds."""
        headers, started = {**self._authorization, "Accept": "*/*", **request.pop("headers", {})}, monotonic()
        name = " ".join([method, *(part for part in path.split("/") if part and "_" not in part)])
        try:
            response = await client.request(method, f"{self._api}{path}", headers=headers, **request)
        except httpx.TransportError as failure:
            answer = Answer(name, 0, monotonic() - started, error={"message": repr(failure)})
        else:
            error = _NO_ERROR if response.is_success else response.json()["error"]
            retry_after, seconds = int(response.headers.get("Retry-After", 0)), monotonic() - started
            answer = Answer(name, response.status_code, seconds, response.content, error, retry_after)
        self.answers.append(answer)
        if answer.status != httpx.codes.OK:
            raise _Failed(answer)
        return answer

    def _check(self, answer: Answer) -> None:
        self.wrong_results += not is_image(answer.content, _SIZE)

    def _form(self) -> dict[str, Any]:
        return {"files": {"file": ("a.png", self._content)}, "data": {"output_format": "webp"}}

    def _new_key(self) -> str:
        return f"{id(self)}-{next(self._keys)}"


def _data(answer: Answer) -> Mapping[str, Any]:
    data: Mapping[str, Any] = httpx.Response(200, content=answer.content).json()["data"]
    return data
