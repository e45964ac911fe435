"""Values: files, what was sent, and the result or the fault that came of it."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import Any, Literal

from peewee import fn

from storage import models
from storage.errors import NotFound
from storage.ids import is_id, new_id
from storage.transaction import Transaction


@dataclass(frozen=True)
class SourceFile:
    """A file as it was sent. `source` is the blob of its bytes, None where they are not kept; sizes are in bytes."""

    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None = None


@dataclass(frozen=True)
class ConvertedFile:
    """What a conversion made of a file: `size` bytes in `blob`. Warnings are pairs of a code and a message."""

    output_format: str
    size: int
    filename: str
    media_type: str
    blob: str
    seconds: float
    warnings: tuple[tuple[str, str], ...] = ()

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ConvertedFile:
        fields = json.loads(text)
        warnings = tuple((code, message) for code, message in fields.pop("warnings"))
        return cls(**fields, warnings=warnings)


@dataclass(frozen=True)
class Failure:
    """Why a conversion failed, as clients are told."""

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
    """A file of an account. It has a fault when its last conversion failed, and can then be converted again."""

    id: str
    account: str
    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None
    outcome: ConvertedFile | None
    fault: Failure | None
    batch: str | None
    source_file: str | None  # the file that it was converted anew from
    created_at: int
    processed_at: int | None
    expires_at: int

    @property
    def material(self) -> SourceFile:
        """What is converted when the file is: what was sent, or its result where nothing else is kept."""
        made = self.outcome
        if self.source is not None or made is None:
            return SourceFile(self.original_name, self.extension, self.input_format, self.original_size, self.source)
        extension = made.filename.rpartition(".")[2]
        return SourceFile(made.filename, extension, made.output_format, made.size, made.blob)

    @property
    def status(self) -> Literal["pending", "processed"]:
        return "processed" if self.outcome else "pending"

    @classmethod
    def of(cls, row: models.File) -> File:
        """The row as a value."""
        return cls(
            id=row.id,
            account=row.account,
            original_name=row.original_name,
            extension=row.extension,
            input_format=row.input_format,
            original_size=row.original_size,
            source=row.source,
            outcome=ConvertedFile.from_json(row.outcome) if row.outcome else None,
            fault=Failure.from_json(row.fault) if row.fault else None,
            batch=row.batch,
            source_file=row.source_file,
            created_at=row.created_at,
            processed_at=row.processed_at,
            expires_at=row.expires_at,
        )


def add(transaction: Transaction, account: str, original: SourceFile, retention: int) -> File:
    """Keeps an upload that is yet to be converted, for `retention` seconds."""
    return insert(transaction, account, original, retention)


def stored(transaction: Transaction, account: str) -> int:
    """The bytes of the account's uploads that are kept."""
    table = models.File
    mine = (table.account == account) & table.source.is_null(False) & (table.expires_at > transaction.now)
    # Files that were made of the same upload share it.
    own = mine & table.source_file.is_null()
    ((total,),) = transaction.tuples(table.select(fn.SUM(table.original_size)).where(own))
    return int(total or 0)


def record(
    transaction: Transaction,
    account: str,
    original: SourceFile,
    outcome: ConvertedFile,
    retention: int,
    file_id: str | None = None,
) -> File:
    """Keeps what was sent and converted in one request.

    A caller that chooses the id beforehand can look the file up after an OutcomeUnknown.
    """
    return insert(transaction, account, original, retention, id=file_id, **_processed(transaction, outcome))


def get(transaction: Transaction, account: str, file_id: str) -> File:
    """The account's file of that id. Raises Missing."""
    found = transaction.first(models.File.select().where(_live(transaction, account, file_id)))
    if found is None:
        raise NotFound("file")
    return File.of(found)


def find_by_result(transaction: Transaction, account: str, blob: str) -> File | None:
    """The account's file whose result is that blob: what to look for after an OutcomeUnknown."""
    mine = (models.File.result == blob) & (models.File.account == account)
    found = transaction.first(models.File.select().where(mine))
    return File.of(found) if found else None


def process(
    transaction: Transaction,
    account: str,
    file_id: str,
    outcome: ConvertedFile,
    retention: int,
    anew_id: str | None = None,
) -> File:
    """A conversion succeeded: the file is processed, and expires `retention` seconds from now.

    What a file has become never changes. Where it was processed before, this gives a new file, of the id
    `anew_id` if there is one, that is in no batch. Raises Missing where the file was deleted or has expired.
    """
    row = transaction.locked(models.File.select().where(_live(transaction, account, file_id)))
    if row is None:
        raise NotFound("file")
    if row.processed_at is not None:
        original = File.of(row).material
        new = {"id": anew_id, "source_file": row.id, **_processed(transaction, outcome)}
        return insert(transaction, account, original, retention, **new)
    changes = {**_processed(transaction, outcome), "fault": None, "expires_at": transaction.now + retention}
    _change(transaction, row, changes)
    return get(transaction, account, file_id)


def fail(transaction: Transaction, account: str, file_id: str, fault: Failure) -> None:
    """A conversion failed: the file stays pending. Does nothing where it is processed or gone."""
    pending = _live(transaction, account, file_id) & models.File.processed_at.is_null()
    row = transaction.locked(models.File.select().where(pending))
    if row is not None:
        _change(transaction, row, {"fault": fault.as_json()})


def delete(transaction: Transaction, account: str, file_id: str) -> tuple[str, ...]:
    """Forgets a file; gives the blobs that nobody needs any more. Raises Missing."""
    gone = _erase(transaction, _live(transaction, account, file_id))
    if not gone:
        raise NotFound("file")
    return _unneeded(transaction, gone)


def expired(transaction: Transaction, limit: int) -> tuple[str, ...]:
    """Forgets files that have expired, so many at most; gives the blobs that nobody needs any more."""
    table = models.File
    over = table.expires_at <= transaction.now
    some = table.select(table.id).where(over).order_by(table.expires_at).limit(limit)
    # Asked again, because one of them may have been converted since and live on.
    return _unneeded(transaction, _erase(transaction, table.id.in_(some) & over))


def known(transaction: Transaction, keys: Collection[str]) -> frozenset[str]:
    """Which of these blobs, a thousand at most, belong to a file."""
    table = models.File
    query = table.select(table.source, table.result).where(table.source.in_(keys) | table.result.in_(keys))
    return frozenset(keys) & {key for row in transaction.tuples(query) for key in row}


def insert(transaction: Transaction, account: str, original: SourceFile, retention: int, **more: Any) -> File:
    """Adds a row, with the columns of `more`; for other modules of this folder."""
    row = {
        **asdict(original),
        **more,
        "id": more.get("id") or new_id("file"),
        "account": account,
        "created_at": transaction.now,
        "expires_at": transaction.now + retention,
    }
    transaction.add(models.File.insert(row))
    return File.of(models.File(**row))


def extend_batch(transaction: Transaction, batch_id: str, until: int) -> None:
    """Notes that a batch has changed, and lets it live as long as its files; for other modules of this folder."""
    table = models.Batch
    transaction.change(table.update({table.updated_at: transaction.now}).where(table.id == batch_id))
    younger = (table.id == batch_id) & (table.expires_at < until)
    transaction.change(table.update({table.expires_at: until}).where(younger))


def _processed(transaction: Transaction, outcome: ConvertedFile) -> dict[str, Any]:
    """The columns of a file that has been converted."""
    return {"result": outcome.blob, "outcome": outcome.as_json(), "processed_at": transaction.now}


def _live(transaction: Transaction, account: str, file_id: str) -> Any:
    table = models.File
    if not is_id("file", file_id):
        raise NotFound("file")
    return (table.id == file_id) & (table.account == account) & (table.expires_at > transaction.now)


def _change(transaction: Transaction, row: models.File, changes: dict[str, Any]) -> None:
    transaction.change(models.File.update(changes).where(models.File.id == row.id))
    if row.batch is not None:
        extend_batch(transaction, row.batch, changes.get("expires_at", 0))


def _erase(transaction: Transaction, which: Any) -> list[tuple[Any, ...]]:
    """Deletes rows; gives the blobs that they refer to."""
    table = models.File
    return transaction.change_returning(table.delete().where(which), table.source, table.result)


def _unneeded(transaction: Transaction, blobs: list[tuple[Any, ...]]) -> tuple[str, ...]:
    keys = {key for pair in blobs for key in pair if key is not None}
    return tuple(sorted(keys - known(transaction, keys)))
