"""What is known of a conversion: what was sent, and the result or the fault that came of it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


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
