"""Stored files: uploads, the results of their conversions, and failures."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from peewee import Case, fn

from storage.database import Transaction
from storage.errors import NotFound
from storage.ids import is_id, new_id
from storage.tables import models


@dataclass(frozen=True)
class SourceFile:
    """An uploaded file. `source` is the key of its blob, None if its bytes are not stored. Sizes are in bytes."""

    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None = None


@dataclass(frozen=True)
class ConvertedFile:
    """The result of a conversion: `size` bytes in `blob`. Warnings are pairs of a code and a message.

    Several files are the entries of a `container`. `quality_used` is the quality that a size limit led to.
    """

    output_format: str
    size: int
    filename: str
    media_type: str
    blob: str
    seconds: float
    warnings: tuple[tuple[str, str], ...] = ()
    container: Literal["zip"] | None = None
    file_count: int = 1
    quality_used: int | None = None

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ConvertedFile:
        fields = json.loads(text)
        warnings = tuple((code, message) for code, message in fields.pop("warnings"))
        return cls(**fields, warnings=warnings)


@dataclass(frozen=True)
class Failure:
    """The error of a failed conversion, as the API reports it."""

    code: str
    message: str
    reason: str | None
    retryable: bool

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Failure:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class File:
    """A stored file. `failure` is set if the last conversion failed; the conversion can be repeated.

    Times are Unix time in whole seconds.
    """

    id: str
    account: str
    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None
    converted: ConvertedFile | None
    failure: Failure | None
    batch: str | None
    source_file: str | None  # the file whose repeated conversion created this one
    created_at: int
    processed_at: int | None
    expires_at: int

    @property
    def conversion_source(self) -> SourceFile:
        """The input of the next conversion: the upload if its bytes are stored, else the result."""
        result = self.converted
        if self.source is not None or result is None:
            return SourceFile(self.original_name, self.extension, self.input_format, self.original_size, self.source)
        extension = result.filename.rpartition(".")[2]
        return SourceFile(result.filename, extension, result.output_format, result.size, result.blob)

    @property
    def status(self) -> Literal["pending", "processed"]:
        return "processed" if self.converted else "pending"

    @classmethod
    def from_row(cls, row: models.File) -> File:
        return cls(
            id=row.id,
            account=row.account,
            original_name=row.original_name,
            extension=row.extension,
            input_format=row.input_format,
            original_size=row.original_size,
            source=row.source,
            converted=ConvertedFile.from_json(row.outcome) if row.outcome else None,
            failure=Failure.from_json(row.fault) if row.fault else None,
            batch=row.batch,
            source_file=row.source_file,
            created_at=row.created_at,
            processed_at=row.processed_at,
            expires_at=row.expires_at,
        )


def add(transaction: Transaction, account: str, original: SourceFile, retention: int) -> File:
    """Adds an upload that expires after `retention` seconds."""
    return insert(transaction, account, original, retention)


def stored_bytes(transaction: Transaction, account: str) -> int:
    """Returns the size of the account's stored uploads and results in bytes."""
    table = models.File
    own = (table.account == account) & (table.expires_at > transaction.now)
    # Files with a `source_file` share its upload.
    has_upload = table.source.is_null(False) & table.source_file.is_null()
    uploads = fn.SUM(Case(None, [(has_upload, table.original_size)], 0))
    ((uploaded, converted),) = transaction.rows(table.select(uploads, fn.SUM(table.result_size)).where(own))
    return int(uploaded or 0) + int(converted or 0)


def add_processed(
    transaction: Transaction, account: str, original: SourceFile, converted: ConvertedFile, retention: int
) -> File:
    """Adds a file that was uploaded and converted in one request. It expires after `retention` seconds."""
    return insert(transaction, account, original, retention, **_result_columns(transaction, converted))


def get(transaction: Transaction, account: str, file_id: str) -> File:
    """Returns the account's file with this id. Raises NotFound."""
    row = transaction.first(models.File.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    return File.from_row(row)


def find_by_result(transaction: Transaction, account: str, blob: str) -> File | None:
    """Returns the account's file with this result, or None: after CommitUnknown, whether the result was saved."""
    own = (models.File.result == blob) & (models.File.account == account)
    row = transaction.first(models.File.select().where(own))
    return File.from_row(row) if row else None


def mark_processed(
    transaction: Transaction,
    account: str,
    file_id: str,
    converted: ConvertedFile,
    retention: int,
) -> File:
    """Saves the result of a conversion. The file expires `retention` seconds from now.

    Results are immutable: if the file has one already, this result is saved as a new file outside of any batch. Returns
    the file with the result. Raises NotFound if the file was deleted or has expired.
    """
    row = transaction.select_for_update(models.File.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    if row.processed_at is not None:
        original = File.from_row(row).conversion_source
        columns = {"source_file": row.id, **_result_columns(transaction, converted)}
        return insert(transaction, account, original, retention, **columns)
    changes = {**_result_columns(transaction, converted), "fault": None, "expires_at": transaction.now + retention}
    _update(transaction, row, changes)
    return get(transaction, account, file_id)


def mark_failed(transaction: Transaction, account: str, file_id: str, failure: Failure) -> None:
    """Saves the failure of a conversion. Does nothing if the file is processed, deleted or expired."""
    pending = _live(transaction, account, file_id) & models.File.processed_at.is_null()
    row = transaction.select_for_update(models.File.select().where(pending))
    if row is not None:
        _update(transaction, row, {"fault": failure.as_json()})


def delete(transaction: Transaction, account: str, file_id: str) -> tuple[str, ...]:
    """Deletes a file with its upload, but not the results of its repeated conversions. Raises NotFound.

    Returns the blobs that no file refers to any more.
    """
    table = models.File
    row = transaction.select_for_update(table.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    deleted = _delete_rows(transaction, table.id == row.id)
    if row.source_file is None:
        repeated = (table.account == account) & table.source_file.is_null(False)
        repeated &= table.source.in_([row.source, row.result])
        transaction.execute(table.update({table.source: None}).where(repeated))
    return _unreferenced(transaction, deleted)


def delete_all(transaction: Transaction, account: str) -> tuple[str, ...]:
    """Deletes all files of the account. Returns the blobs that no file refers to any more."""
    return _unreferenced(transaction, _delete_rows(transaction, models.File.account == account))


def delete_expired(transaction: Transaction, limit: int) -> tuple[str, ...]:
    """Deletes at most `limit` expired files. Returns the blobs that no file refers to any more."""
    table = models.File
    expired = table.expires_at <= transaction.now
    selected = table.select(table.id).where(expired).order_by(table.expires_at).limit(limit)
    # The condition is repeated because a conversion may have extended a selected file's life.
    return _unreferenced(transaction, _delete_rows(transaction, table.id.in_(selected) & expired))


def referenced_blobs(transaction: Transaction, keys: Collection[str]) -> frozenset[str]:
    """Returns the subset of the blobs (at most 1,000) that files refer to."""
    table = models.File
    query = table.select(table.source, table.result).where(table.source.in_(keys) | table.result.in_(keys))
    return frozenset(keys) & {key for row in transaction.rows(query) for key in row}


def insert(transaction: Transaction, account: str, original: SourceFile, retention: int, **columns: Any) -> File:
    """Inserts a file with additional columns. For other modules of this package."""
    row = {
        **asdict(original),
        **columns,
        "id": new_id("file"),
        "account": account,
        "created_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    transaction.insert(models.File.insert(row))
    return File.from_row(models.File(**row))


def extend_batch(transaction: Transaction, batch_id: str, until: int) -> None:
    """Updates a batch's time of change and defers its expiry to `until` at least. For other modules of this package."""
    table = models.Batch
    transaction.execute(table.update({table.updated_at: transaction.now}).where(table.id == batch_id))
    expires_earlier = (table.id == batch_id) & (table.expires_at < until)
    transaction.execute(table.update({table.expires_at: until}).where(expires_earlier))


def _result_columns(transaction: Transaction, converted: ConvertedFile) -> dict[str, Any]:
    return {
        "result": converted.blob,
        "result_size": converted.size,
        "outcome": converted.as_json(),
        "processed_at": transaction.now,
    }


def _live(transaction: Transaction, account: str, file_id: str) -> Any:
    table = models.File
    if not is_id("file", file_id):
        raise NotFound("file")
    return (table.id == file_id) & (table.account == account) & (table.expires_at > transaction.now)


def _update(transaction: Transaction, row: models.File, changes: dict[str, Any]) -> None:
    transaction.execute(models.File.update(changes).where(models.File.id == row.id))
    if row.batch is not None:
        extend_batch(transaction, row.batch, changes.get("expires_at", 0))


def _delete_rows(transaction: Transaction, condition: Any) -> list[tuple[Any, ...]]:
    """Deletes files. Returns the blobs of each: source and result."""
    table = models.File
    return transaction.execute_returning(table.delete().where(condition), table.source, table.result)


def _unreferenced(transaction: Transaction, blobs: list[tuple[Any, ...]]) -> tuple[str, ...]:
    keys = {key for pair in blobs for key in pair if key is not None}
    return tuple(sorted(keys - referenced_blobs(transaction, keys)))
