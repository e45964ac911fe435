"""The requests of jobs: stored as names and values when they are accepted, and loaded with their files to run."""

from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from engine.errors import UnknownFormat
from engine.options import OptionValue
from engine.registry import Registry
from storage.tables.job_runs import ClaimedJob
from web.api.values import from_json, to_json_text
from web.metrics.conversions import RequestContext
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import ConversionRequest, OutputRequest, RemoteFile, Upload, price_of
from web.services.conversions.remote_files import RemoteFiles
from web.services.files.files import Files
from web.services.files.work_files import WorkFile, WorkFiles
from web.services.jobs.batches import BatchRequest

FETCH_SECONDS = 300.0
"""The time in which all files of a job have to arrive."""

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


@dataclass(frozen=True)
class StoredRequest:
    """The request of a job: to convert `remote` files and `uploads`, the stored file `file_id`, or files of a batch."""

    request_id: str
    key_id: str
    target: str
    options: dict[str, OptionValue] = field(default_factory=dict, repr=False)
    uploads: tuple[StoredUpload, ...] = ()
    tool: str | None = None
    file_names: tuple[str, ...] = ()
    name: str = ""
    file_id: str | None = None
    batch_id: str = ""
    file_ids: tuple[str, ...] = ()
    remote: tuple[RemoteFile, ...] = field(default=(), repr=False)
    export: RemoteFile | None = field(default=None, repr=False)
    outputs: tuple[OutputRequest, ...] = ()

    @property
    def credits(self) -> int:
        """The price of the request, or of each file of a batch."""
        return price_of(self.outputs)

    @property
    def blobs(self) -> int:
        """The number of uploads whose contents are blobs: all, or none if they are small."""
        return sum(upload.content is None for upload in self.uploads)

    @classmethod
    def of(cls, request: ConversionRequest | BatchRequest) -> "StoredRequest":
        """Returns the stored form of a request that can be planned."""
        options, request_id, key_id = dict(request.options), request.context.request_id, request.account.key_id
        if isinstance(request, BatchRequest):
            files = request.file_ids
            stored = cls(request_id, key_id, request.target, options, batch_id=request.batch_id, file_ids=files)
            return replace(stored, outputs=request.outputs)
        return cls(
            request_id,
            key_id,
            request.target,
            options,
            uploads=_stored_uploads(request.uploads) if request.file is None else (),
            tool=request.tool,
            file_names=request.file_names,
            name=request.name,
            file_id=None if request.file is None else request.file.file_id,
            remote=request.remote,
            export=request.export,
            outputs=request.outputs,
        )

    def to_text(self) -> str:
        """Returns the request for a row."""
        return to_json_text(self)

    @classmethod
    def from_text(cls, text: str) -> "StoredRequest":
        """Reads the request of a row."""
        return from_json(cls, text)

    def batch(self, account: Account) -> BatchRequest:
        """Returns the request to convert files of a batch."""
        context = RequestContext(self.request_id)
        files = self.batch_id, self.file_ids
        return BatchRequest(account, *files, self.target, self.options, context=context, outputs=self.outputs)


class JobRequests:
    """Loads the requests of jobs."""

    def __init__(self, files: Files, remote_files: RemoteFiles, work_files: WorkFiles, registry: Registry) -> None:
        self._files = files
        self._remote_files = remote_files
        self._work_files = work_files
        self._registry = registry

    @asynccontextmanager
    async def load(
        self, job: ClaimedJob, stored: StoredRequest, account: Account
    ) -> AsyncIterator[tuple[ConversionRequest, WorkFile]]:
        """The request of a job, with its files in work files during the block, and an empty work file.

        Raises NotFound, RateLimited, NoSpace and StoreUnavailable, and the errors of `RemoteFiles.fetch`.
        """
        with ExitStack() as stack:
            file, uploads = None, []
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
            request = ConversionRequest(
                account=account,
                operation=job.operation,
                uploads=tuple(uploads),
                target=stored.target,
                options=stored.options,
                tool=stored.tool,
                file_names=stored.file_names,
                name=stored.name,
                store_result=True,
                file=file,
                context=RequestContext(stored.request_id),
                remote=stored.remote,
                export=stored.export,
                outputs=stored.outputs,
            )
            async with self._remote_files.complete(request, FETCH_SECONDS) as complete:
                yield complete, stack.enter_context(self._work_files.create(account.tenant.id))


def _stored_uploads(uploads: Sequence[Upload]) -> tuple[StoredUpload, ...]:
    small = sum(upload.size for upload in uploads) <= SMALL_UPLOADS and all(one.file.in_memory for one in uploads)
    contents = [b64encode(upload.file.read()).decode() if small else None for upload in uploads]
    described = zip(uploads, contents, strict=True)
    return tuple(StoredUpload(one.filename, one.size, one.format.name, content) for one, content in described)
