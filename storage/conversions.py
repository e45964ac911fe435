"""Values: files, what was sent, and the result or the fault that came of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Literal

from storage import models


@dataclass(frozen=True)
class Original:
    """A file as it was sent. `source` is the blob of its bytes, None where they are not kept; sizes are in bytes."""

    original_name: str
    extension: str
    input_format: str
    original_size: int
    source: str | None = None


@dataclass(frozen=True)
class Outcome:
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
    def from_json(cls, text: str) -> Outcome:
        fields = json.loads(text)
        warnings = tuple((code, message) for code, message in fields.pop("warnings"))
        return cls(**fields, warnings=warnings)


@dataclass(frozen=True)
class Fault:
    """Why a conversion failed, as clients are told."""

    code: str
    message: str
    reason: str | None
    retryable: bool

    def as_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Fault:
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
    outcome: Outcome | None
    fault: Fault | None
    batch: str | None
    source_file: str | None  # the file that it was converted anew from
    created_at: int
    processed_at: int | None
    expires_at: int

    @property
    def material(self) -> Original:
        """What is converted when the file is: what was sent, or its result where nothing else is kept."""
        made = self.outcome
        if self.source is not None or made is None:
            return Original(self.original_name, self.extension, self.input_format, self.original_size, self.source)
        extension = made.filename.rpartition(".")[2]
        return Original(made.filename, extension, made.output_format, made.size, made.blob)

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
            outcome=Outcome.from_json(row.outcome) if row.outcome else None,
            fault=Fault.from_json(row.fault) if row.fault else None,
            batch=row.batch,
            source_file=row.source_file,
            created_at=row.created_at,
            processed_at=row.processed_at,
            expires_at=row.expires_at,
        )
