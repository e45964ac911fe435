"""Runs the calls of agents on a server, by the client of its API: each conversion is a job."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any, TypeVar

from convertd_client import AsyncClient, ConvertdError, Job
from web.agents.calls import MAX_RETURNED, AgentError, Call, Source, by_name

T = TypeVar("T")

_MAX_RETRY_WAIT = 5  # seconds; if the wait would be longer, the agent gets an error

_WAIT = 50
"""Seconds after which a call responds with a job that goes on. Many clients give up after 60."""


@asynccontextmanager
async def connect(server: str, key: str) -> AsyncIterator[RemoteBackend]:
    """The API of the server with an API key."""
    async with AsyncClient(server, key, max_retry_wait=_MAX_RETRY_WAIT) as client:
        yield RemoteBackend(client)


class RemoteBackend:
    """The API of a server."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def run(self, call: Call) -> dict[str, Any]:
        """Runs a conversion or a tool as a job, or inspects a file."""
        source = call.sources[0]
        options: dict[str, Any] = {**call.options, **by_name((name, _content(one)) for name, one in call.additional)}
        if call.dry_run:
            found = self._client.inspect(_content(source), call.target, url=source.url, name=_name(source), **options)
            return asdict(await _asked(found))
        job = await _asked(self._submit(call, options))
        if not call.background:
            job = await _asked(self._wait(job, _WAIT))
        return await self._describe(job, call)

    async def formats(self, source: str | None, target: str | None) -> dict[str, Any]:
        """Returns the output formats of all input formats or of one, or the options of a pair."""
        if source and target:
            return asdict(await _asked(self._client.conversion(source, target)))
        by_input = (await _asked(self._client.formats())).by_input_format
        return {"by_input_format": {name: [*found] for name, found in by_input.items() if source in (None, name)}}

    async def job(self, job_id: str, wait: int) -> dict[str, Any]:
        """Returns a job, after at most `wait` seconds."""
        job = await _asked(self._client.job(job_id))
        return await self._describe(await _asked(self._wait(job, wait)), None)

    async def account(self) -> dict[str, Any]:
        """Returns the account of the API key."""
        return asdict(await _asked(self._client.account()))

    async def _submit(self, call: Call, options: dict[str, Any]) -> Job:
        source = call.sources[0]
        if call.tool is None:
            return await self._client.submit(
                _content(source), call.target, url=source.url, name=_name(source), **options
            )
        urls = [one.url for one in call.sources if one.url is not None]
        if urls:
            options |= {"urls": urls} if len(urls) > 1 else {"url": urls[0]}
        files = [content for one in call.sources if (content := _content(one)) is not None]
        sent: Any = files if len(files) != 1 else files[0]
        return await self._client.submit_tool(call.tool, sent, name=_name(source), **options)

    async def _wait(self, job: Job, seconds: int) -> Job:
        """Waits until the job ends, for at most `seconds`. Returns its latest state."""
        if job.finished_at is not None or not seconds:
            return job
        try:
            return await self._client.wait(job.job_id, seconds)
        except TimeoutError:
            return await self._client.job(job.job_id)

    async def _describe(self, job: Job, call: Call | None) -> dict[str, Any]:
        """Describes a job for an agent: its result, with a link or the file. Raises AgentError if it failed."""
        if job.error is not None:
            raise AgentError(job.error.code, job.error.message, reason=job.error.reason, job_id=job.job_id)
        described = {"job_id": job.job_id, "status": job.status}
        if job.result is None or "file_id" not in job.result:
            return {**described, **(job.result or {})}
        kept = {name: value for name, value in job.result.items() if value is not None and name != "download_url"}
        return {**described, **kept, **await _asked(self._deliver(kept, call))}

    async def _deliver(self, result: dict[str, Any], call: Call | None) -> dict[str, Any]:
        file_id = result["file_id"]
        if call is not None and call.output is not None:
            output = call.output.with_suffix(".zip") if result.get("container") else call.output
            try:
                await self._client.download(file_id, to=output, overwrite=call.overwrite)
            except OSError as error:
                raise AgentError("file_error", f"cannot write {output}: {error.strerror}", file_id=file_id) from error
            return {"outputs": [str(output)]}
        link = await self._client.link(file_id)
        found: dict[str, Any] = {"url": link.url, "url_expires_at": link.expires_at}
        if call is not None and call.sources[0].data is not None and result["processed_size"] <= MAX_RETURNED:
            content = base64.b64encode((await self._client.download(file_id)).content).decode()
            found["files"] = [{"name": result["filename"], "data": content}]
        return found


def _content(source: Source) -> Any:
    """What the client sends; None for a file that the server fetches."""
    return source.data if source.path is None else source.path


def _name(source: Source) -> str | None:
    return source.name or ("file" if source.data is not None else None)


async def _asked(response: Awaitable[T]) -> T:
    """The response. Raises AgentError for an error of the API."""
    try:
        return await response
    except ConvertdError as error:
        details = error.details or None
        raise AgentError(error.code, error.message, reason=error.reason, param=error.param, details=details) from error
