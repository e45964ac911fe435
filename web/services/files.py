"""Clients' file names, made safe to send back."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import quote

from engine.errors import ConversionError, UnknownFormat
from engine.formats import FileFormat
from engine.planner import Plan
from engine.registry import Registry
from storage import files
from storage.blob_store import BlobStore
from storage.database import Database
from storage.errors import CommitUnknown
from storage.files import ConvertedFile, Failure, File, SourceFile
from storage.ids import new_id
from storage.transaction import Transaction
from web.api.errors import NotFound, StorageFull
from web.services.accounts import Account
from web.services.charging import SaveResult
from web.services.conversion_request import ConversionOutcome, ConversionRequest, Upload
from web.services.idempotency import Answer
from web.services.serializers import conversion_result

_FORBIDDEN = re.compile(r'[<>:"|?*]')  # on some system
_MAX_NAME = 255  # bytes of UTF-8
_MAX_STEM = 150  # bytes of UTF-8; systems stop at 255 for the whole name
_ATTR_CHAR = "!#$&+-.^_`|~"  # what RFC 8187 leaves as it is, beside letters and digits


def plain(client_name: str) -> str:
    """The client's name for a file, without a path and what cannot be seen."""
    name = _visible(re.split(r"[/\\]", client_name)[-1]).strip()
    return name.encode("utf-8", "replace")[:_MAX_NAME].decode("utf-8", "ignore") or "file"


def renamed(client_name: str, extension: str) -> str:
    """The name of a result: the client's, without its path and extension, with the new extension."""
    name = _FORBIDDEN.sub("_", plain(client_name)).strip(" .")
    stem, dot, _ = name.rpartition(".")
    stem = (stem if dot else name).rstrip(" .")
    short = stem.encode("utf-8", "replace")[:_MAX_STEM].decode("utf-8", "ignore")
    return f"{short or 'file'}.{extension}"


def extension_of(client_name: str) -> str:
    """The name's extension in lower case, without a dot; empty unless it is a short plain word."""
    found = re.search(r"\.([A-Za-z0-9]{1,10})\Z", client_name)
    return found[1].lower() if found else ""


def content_disposition(name: str) -> str:
    """The header that makes browsers save the answer under that name (RFC 6266)."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    plain = re.sub(r'["\\%]', "_", plain)
    if plain.startswith("."):
        plain = f"file{plain}"
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name, safe=_ATTR_CHAR)}"


def _visible(text: str) -> str:
    """Without control and format characters, lone surrogates, and the marks that turn text around."""
    return "".join(char for char in text if not unicodedata.category(char).startswith("C"))


_BATCH_SIZE = 500  # rows or blobs
_ORPHANED = 3600  # seconds after which a blob without a row is certainly not one that is just being stored

AddRow = Callable[[Transaction, SourceFile], File]
"""Makes the row of an upload."""


class Files:
    """Keeps what is known about files in the database, and their bytes as blobs, for `retention` seconds."""

    def __init__(self, database: Database, blobs: BlobStore, registry: Registry, retention: int) -> None:
        self._database = database
        self._blobs = blobs
        self._registry = registry
        self.retention = retention

    async def upload(self, account: Account, upload: Upload) -> File:
        """Stores a file to be converted later. Raises UnknownFormat, and StorageFull."""

        def add(transaction: Transaction, original: SourceFile) -> File:
            return files.add(transaction, account.id, original, self.retention)

        return await self.store(account, upload, add)

    async def store(self, account: Account, upload: Upload, add: AddRow) -> File:
        """Stores the bytes of an upload, then its row. Raises UnknownFormat, StorageFull, and whatever `add` raises."""
        fmt = upload.format
        blob = await self.put(upload.path)
        original = SourceFile(plain(upload.filename), extension(fmt, upload.filename), fmt.name, upload.size, blob)
        try:
            return await self._database.run(_added, account, original, add)
        except CommitUnknown:
            raise  # the row may be there; if it is not, the sweep of orphans finds the blob
        except Exception:
            await self.discard([blob])
            raise

    async def find(self, account_id: str, file_id: str) -> File:
        """The account's file of that id. Raises Missing."""
        return await self._database.run(files.get, account_id, file_id)

    async def delete(self, account_id: str, file_id: str) -> None:
        """Erases a file. Raises Missing."""
        await self.discard(await self._database.run(files.delete, account_id, file_id))

    async def processed(self, account_id: str, file_id: str) -> ConvertedFile:
        """What was made of the account's file of that id. Raises Missing, and NotFound where it is still pending."""
        file = await self.find(account_id, file_id)
        if file.converted is None:
            raise NotFound("The file has not been converted yet.", reason="not_processed")
        return file.converted

    def read(self, made: ConvertedFile, start: int, end: int) -> AsyncIterator[bytes]:
        """The bytes of a result from `start` until before `end`."""
        return self._blobs.read(made.blob, start, end)

    async def working_copy(self, file: File, folder: Path) -> Upload:
        """The bytes to convert, in the folder."""
        material = file.conversion_source
        assert material.source is not None  # what is stored is there
        path = folder / f"input.{material.extension}"
        await self._blobs.fetch(material.source, path)
        gone = UnknownFormat("Files of this format can no longer be converted here.")
        known = self._registry.format(material.input_format) or gone
        return Upload(path, material.original_name, material.original_size, known)

    async def put(self, path: Path) -> str:
        """Takes the file over; gives its key."""
        blob = new_id("blob")
        await self._blobs.put(blob, path)
        return blob

    async def discard(self, blobs: Iterable[str]) -> None:
        """Erases bytes that nothing refers to."""
        await self._blobs.delete(blobs)

    async def sweep(self) -> None:
        """Erases files that have expired."""
        while blobs := await self._database.run(files.delete_expired, _BATCH_SIZE):
            await self.discard(blobs)

    async def sweep_orphans(self) -> None:
        """Erases blobs that no file refers to, as servers leave behind that are killed between the two."""
        found: list[str] = []
        async for blob in self._blobs.list(_ORPHANED):
            found.append(blob)
            if len(found) == _BATCH_SIZE:
                await self._discard_unknown(found)
                found.clear()
        await self._discard_unknown(found)

    async def _discard_unknown(self, blobs: Sequence[str]) -> None:
        known = await self._database.run(files.referenced_blobs, blobs)
        await self.discard([blob for blob in blobs if blob not in known])

    def keeping(self, order: ConversionRequest, plan: Plan, result: ConversionOutcome, blob: str) -> SaveResult:
        """What to write when the order is charged: its file becomes processed, or a new one does."""
        warnings = tuple((warned.code, warned.message) for warned in result.warnings)
        outcome = ConvertedFile(
            plan.target.name, result.size, result.filename, result.media_type, blob, result.seconds, warnings
        )

        def keep(transaction: Transaction) -> Answer:
            account, file = order.account.id, order.file
            kept = files.find_by_result(transaction, account, blob)
            if kept is None and file is not None:
                kept = files.mark_processed(transaction, account, file.id, outcome, self.retention)
            elif kept is None:
                name, fmt = order.original_name, plan.source
                original = SourceFile(plain(name), extension(fmt, name), fmt.name, order.size)
                kept = files.add_processed(transaction, account, original, outcome, self.retention)
            return Answer({**conversion_result(kept), **result.counts}, kept.id)

        return keep

    async def note_failure(self, order: ConversionRequest, error: ConversionError) -> None:
        """Notes at the order's stored file, if it has one, why it could not be converted."""
        if order.file is None:
            return
        fault = Failure(error.code, str(error), error.reason, error.retryable)
        await self._database.run(files.mark_failed, order.account.id, order.file.id, fault)


def _added(transaction: Transaction, account: Account, original: SourceFile, add: AddRow) -> File:
    stored = files.stored_bytes(transaction, account.id)
    if stored + original.original_size > account.tier.max_stored:
        raise StorageFull(stored, account.tier.max_stored)
    return add(transaction, original)


def extension(fmt: FileFormat, filename: str) -> str:
    """The client's extension where it fits the content, else the format's usual one."""
    own = extension_of(filename)
    return own if own in fmt.extensions else fmt.extensions[0]
