"""The requests of jobs: stored as names and values when they are accepted, and loaded with their files to run."""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from engine.errors import UnknownFormat
from engine.formats import ANY_FILE
from engine.registry import Registry
from storage.tables.job_runs import ClaimedJob
from web.api.values import from_json, to_json_text
from web.metrics.conversions import RequestContext
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import ConversionRequest, ConversionSpec, Upload
from web.services.files.files import Files
from web.services.files.work_files import WorkFile, WorkFiles

SMALL_UPLOADS = 16 << 10
"""Bytes of all uploads of a job that are stored with its request: the commit that accepts the job makes them durable.

Blobs would have to be flushed to the disk before.
"""


@dataclass(frozen=True)
class StoredUpload:
    """An upload of a job, with its size in bytes and the name of its format. `content` is Base64; None if in a blob."""

    filename: str
    size: int
    format: str
    content: str | None = field(default=None, repr=False)


@dataclass(frozen=True, kw_only=True)
class StoredSpec(ConversionSpec):
    """What the row of a job has of its request."""

    request_id: str
    key_id: str
    trace_headers: dict[str, str] = field(default_factory=dict)
    uploads: tuple[StoredUpload, ...] = ()

    @property
    def blobs(self) -> int:
        """The number of uploads whose contents are blobs: all, or none if they are small."""
        return sum(upload.content is None for upload in self.uploads)

    @classmethod
    def of(cls, request: ConversionRequest) -> "StoredSpec":
        """Returns the stored form of a request that can be planned."""
        return cls(
            **request.spec(),
            request_id=request.context.request_id,
            key_id=request.account.key_id,
            trace_headers=request.context.trace_headers,
            uploads=_stored_uploads(request.uploads) if request.file is None else (),
        )

    def to_text(self) -> str:
        """Returns the request for a row."""
        return to_json_text(self)

    @classmethod
    def from_text(cls, text: str) -> "StoredSpec":
        """Reads the request of a row."""
        return from_json(cls, text)

    def request_of(self, account: Account) -> ConversionRequest:
        """Returns the request of an account, without its files."""
        context = RequestContext(self.request_id, trace_headers=self.trace_headers)
        return ConversionRequest(**self.spec(), account=account, context=context)


class RequestLoader:
    """Loads the requests of jobs."""

    def __init__(self, files: Files, work_files: WorkFiles, registry: Registry) -> None:
        self._files = files
        self._work_files = work_files
        self._registry = registry

    @asynccontextmanager
    async def load(
        self, job: ClaimedJob, stored: StoredSpec, original: ConversionRequest
    ) -> AsyncIterator[tuple[ConversionRequest, WorkFile]]:
        """The request of a job with its uploads in work files, which exist during the block, and an empty work file.

        `original` is the request without them. Raises NotFound, RateLimited, NoSpace and StoreUnavailable.
        """
        account = original.account
        with ExitStack() as stack:
            file = None
            uploads: list[Upload] = []
            if stored.file_id is not None:
                file = await self._files.find(account.id, stored.file_id)
                source = stack.enter_context(self._work_files.create(account.tenant.id))
                uploads.append(await self._files.working_copy(file, source))
            for number, upload in enumerate(stored.uploads):
                source = stack.enter_context(self._work_files.create(account.tenant.id))
                if upload.content is None:
                    await self._files.load_input(job.blobs[number], upload.size, source)
                else:
                    await source.write(b64decode(upload.content))
                unknown = UnknownFormat("This server no longer supports the format of this file.")
                identified = self._registry.format(upload.format) or unknown
                uploads.append(Upload(source, upload.filename, upload.size, identified))
            request = replace(original, uploads=tuple(uploads), file=file, store_result=True)
            yield (
                replace(request, operation=job.operation),
                stack.enter_context(self._work_files.create(account.tenant.id)),
            )


def _stored_uploads(uploads: Sequence[Upload]) -> tuple[StoredUpload, ...]:
    small = sum(upload.size for upload in uploads) <= SMALL_UPLOADS and all(one.file.in_memory for one in uploads)
    contents = [b64encode(upload.file.read()).decode() if small else None for upload in uploads]
    formats = [ANY_FILE if isinstance(upload.identified, Exception) else upload.identified for upload in uploads]
    described = zip(uploads, formats, contents, strict=True)
    return tuple(StoredUpload(one.filename, one.size, fmt.name, content) for one, fmt, content in described)
