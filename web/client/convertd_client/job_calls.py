"""Calls about jobs: requests that the server processes in the background."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from convertd_client import schema, transfers
from convertd_client.parameters import ToolOption, as_form, files_of_tool, quoted, split_fields
from convertd_client.schema import ConvertOptions
from convertd_client.transfers import Progress, Source
from convertd_client.transport import Transport

_LONGEST_WAIT = 60  # seconds of one request


class JobCalls:
    """The calls about jobs."""

    def __init__(self, api: Transport) -> None:
        self._api = api

    async def submit(
        self,
        /,
        source: Source | None,
        target: str | None = None,
        *,
        url: str | None = None,
        tag: str | None = None,
        webhook_url: str | None = None,
        name: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[ConvertOptions],
    ) -> schema.Job:
        """Uploads a file, which is converted in the background. `wait` returns the ended job.

        If the source is None, the server fetches the file from the `url`. `name` replaces the filename of the source.
        `tag` is a text by which `jobs` finds the job, and `webhook_url` receives it when it has ended.
        """
        fields = {**options, "output_format": target, "url": url, "tag": tag, "webhook_url": webhook_url}
        return await self._submit("/convert", [] if source is None else [("file", source)], fields, name, progress)

    async def submit_tool(
        self,
        /,
        tool: str,
        files: Source | Sequence[Source] = (),
        *,
        tag: str | None = None,
        webhook_url: str | None = None,
        name: str | None = None,
        progress: Progress | None = None,
        **options: ToolOption,
    ) -> schema.Job:
        """Uploads files, on which a tool runs in the background. The arguments are as in `tool` and `submit`."""
        path, fields = f"/tools/{quoted(tool)}", {**options, "tag": tag, "webhook_url": webhook_url}
        return await self._submit(path, files_of_tool(files), fields, name, progress)

    async def submit_batch(
        self,
        /,
        batch_id: str,
        file_ids: Sequence[str],
        target: str | None = None,
        *,
        tag: str | None = None,
        webhook_url: str | None = None,
        **options: Unpack[ConvertOptions],
    ) -> schema.Job:
        """Converts files of a batch in the background. The `result` of the job is as of `convert_batch`."""
        path, job = f"/batch/{quoted(batch_id)}/convert", {"tag": tag, "webhook_url": webhook_url}
        body = {**options, "file_ids": [*file_ids], "output_format": target}
        body |= {field: value for field, value in job.items() if value is not None}
        return await self._api.call(schema.Job, "POST", path, json=body, idempotent=True, prefer="respond-async")

    async def job(self, job_id: str) -> schema.Job:
        """Returns a job."""
        return await self._api.call(schema.Job, "GET", f"/jobs/{quoted(job_id)}")

    async def wait(self, job_id: str, seconds: float | None = None) -> schema.Job:
        """Waits until a job has ended, and returns it. Its `status` is completed, failed or cancelled.

        `download` fetches `result["file_id"]`. Raises TimeoutError if it has not ended after as many `seconds`.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LONGEST_WAIT if deadline is None else deadline - time.monotonic()
            prefer = f"wait={max(0, min(round(left), _LONGEST_WAIT))}"
            job = await self._api.call(schema.Job, "GET", f"/jobs/{quoted(job_id)}", prefer=prefer)
            if job.finished_at is not None:
                return job
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"The job {job_id} has not ended in {seconds:g} s.")

    async def jobs(
        self, *, status: str | None = None, tag: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> schema.JobList:
        """Returns jobs, newest first. The `next_cursor` of the result is the `cursor` of further ones."""
        params = as_form(status=status, tag=tag, limit=limit, cursor=cursor)
        return await self._api.call(schema.JobList, "GET", "/jobs", params=params)

    async def end_job(self, job_id: str) -> schema.Job:
        """Cancels a job that waits or runs; deletes one that has ended, with its result."""
        return await self._api.call(schema.Job, "DELETE", f"/jobs/{quoted(job_id)}")

    async def _submit(
        self,
        path: str,
        files: Sequence[tuple[str, Source]],
        fields: Mapping[str, object],
        name: str | None,
        progress: Progress | None,
    ) -> schema.Job:
        request: dict[str, Any] = {"idempotent": True, "prefer": "respond-async"}
        texts, additional = split_fields(fields)
        with transfers.open_form(texts, [*files, *additional], name, progress) as form:
            return await self._api.call(schema.Job, "POST", path, files=form, **request)
