"""/jobs: requests that are processed in the background."""

import json

from storage.tables.jobs import Job as StoredJob
from web.api.fields import JobListQuery
from web.api.job_fields import PreferHeader
from web.api.operations import Operation, Response, json_response
from web.api.schemas.jobs import EndedJob, Job, JobList, describe_job
from web.api.values import API, below
from web.http.handler import BaseHandler, cancelled_on_disconnect
from web.services.conversions.conversion_request import ConversionRequest
from web.services.conversions.idempotency import Replayed, ResponseData

_EVENT_STREAM = "text/event-stream"
_SIGN_OF_LIFE = 15.0  # seconds without an event after which a comment is sent


async def accept_job(handler: BaseHandler, request: ConversionRequest) -> ResponseData | Replayed:
    """Accepts a request as a job, or returns the response of an earlier request. Raises PublicError."""
    handler.begin_trace()
    accepted = await handler.services.jobs.accept(request)
    if isinstance(accepted, Replayed):
        handler.authorization.credits_remaining = await handler.services.accounts.balance(handler.client().id)
        return accepted
    handler.authorization.credits_remaining = accepted.balance
    return accepted.response


async def respond_with_job(handler: BaseHandler, response: ResponseData) -> None:
    """Responds with an accepted job, or if it ends while the client waits, with the job and its result in one."""
    job = dict(response.data)
    preferences = handler.preferences
    account = handler.client().id
    ended = False
    if preferences.respond_async and preferences.wait is not None:
        services = handler.services
        waited = await services.jobs.wait(await services.jobs.find(account, job["job_id"]), preferences.wait)
        if ended := waited.has_ended:
            job = describe_job(waited)
            result = job["result"] or {}
            job = {**result, **job, "kind": result.get("kind", job["kind"])}
            handler.authorization.credits_remaining = await services.accounts.balance(account)
    if preferences.respond_async:
        handler.set_header("Preference-Applied", preferences.applied)
    if not ended:
        handler.set_status(202)
        handler.set_header("Location", f"{handler.base_path}{API}/jobs/{job['job_id']}")
    handler.respond(job)


class Jobs(BaseHandler):
    """The jobs of an account."""

    @Operation(id="jobsList", tag="Jobs", query=JobListQuery, responses=(json_response(JobList),))
    async def get(self) -> None:
        """List jobs

        Newest first. Jobs are deleted when they expire.
        """
        query = self.input.query_fields(JobListQuery)
        page = await self.services.jobs.list_page(self.client().id, **dict(query))
        self.respond({"jobs": [describe_job(job) for job in page.values], "next_cursor": page.next_cursor})


class JobResource(BaseHandler):
    """A job."""

    @Operation(id="jobsGet", tag="Jobs", headers=PreferHeader, responses=(json_response(Job),))
    @cancelled_on_disconnect
    async def get(self, job_id: str) -> None:
        """Get the status of a job

        With the header `Prefer: wait=N`, the response is held until the job ends, for at most N seconds.
        """
        job = await self.services.jobs.find(self.client().id, job_id)
        seconds = self.preferences.wait
        if seconds is not None:
            job = await self.services.jobs.wait(job, seconds)
            self.set_header("Preference-Applied", self.preferences.applied)
        self.respond(describe_job(job))

    @Operation(id="jobsCancel", tag="Jobs", responses=(json_response(EndedJob),))
    async def delete(self, job_id: str) -> None:
        """Cancel or delete a job

        A job that waits or runs is cancelled, and is not charged. A job that has ended is deleted with its result.
        """
        job, deleted = await self.services.jobs.end(self.client(), job_id)
        self.authorization.credits_remaining = await self.services.accounts.balance(self.client().id)
        self.respond({**describe_job(job), "deleted": deleted})


class EventStream(BaseHandler):
    """The changes of a job, as they happen."""

    @Operation(
        id="jobsFollow",
        tag="Jobs",
        responses=(Response(200, "Events, until the job ends.", media_types=(_EVENT_STREAM,)),),
    )
    @cancelled_on_disconnect
    async def get(self, job_id: str) -> None:
        """Follow a job

        Server-sent events named `job`, each with the job as JSON: at first, and after each change of its status or its
        progress. The stream ends with the job.
        """
        job = await self.services.jobs.find(self.client().id, job_id)
        self.set_header("Content-Type", _EVENT_STREAM)
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")  # nginx would collect the events
        if self.request.method == "HEAD":
            return
        with self.services.jobs.changes.watch(job) as watcher:
            await self._send(job)
            while not watcher.is_over:
                if await watcher.change(_SIGN_OF_LIFE):
                    if watcher.job is not job:
                        job = watcher.job
                        await self._send(job)
                else:
                    self.write(": waiting\n\n")
                    await self.flush()

    async def _send(self, job: StoredJob) -> None:
        self.write(f"event: job\ndata: {json.dumps(below(self.base_path, describe_job(job)), ensure_ascii=False)}\n\n")
        await self.flush()
