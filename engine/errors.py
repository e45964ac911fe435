"""What can go wrong in a conversion. Each kind carries its public code; HTTP statuses are not known here.

ConversionError          processing_failed
├─ UnknownFormat         invalid_file_type
├─ UnsupportedConversion unsupported_conversion
├─ InvalidOption         invalid_parameter
├─ TooLarge              file_too_large
├─ CorruptInput          processing_failed / corrupt_input
├─ StepFailed            processing_failed / engine_error
├─ OutOfMemory           processing_failed / out_of_memory    retryable
├─ TimedOut              processing_failed / timeout          retryable
└─ WorkerCrashed         processing_failed / worker_crashed   retryable
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class ConversionError(Exception):
    """A conversion that cannot be done; `str(error)` is a sentence for the client.

    `reason` narrows the code, `param` names the request field at fault, `details` holds JSON values only,
    because an error crosses from the job's process to ours as JSON.
    """

    code: ClassVar[str] = "processing_failed"
    default_reason: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason or self.default_reason
        self.param = param
        self.details = dict(details or {})

    def as_json(self) -> dict[str, Any]:
        """The error as JSON values; `from_json` makes the same error of them in another process."""
        return {
            "kind": next(kind.__name__ for kind in type(self).__mro__ if kind.__name__ in _kinds()),
            "message": str(self),
            "reason": self.reason,
            "param": self.param,
            "details": self.details,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ConversionError:
        """The error that `as_json` described; an unknown kind becomes a plain ConversionError."""
        kind = _kinds().get(str(values.get("kind")), ConversionError)
        details = values.get("details")
        return kind(
            str(values.get("message") or "The conversion failed."),
            reason=_text(values.get("reason")),
            param=_text(values.get("param")),
            details=details if isinstance(details, dict) else None,
        )


class UnknownFormat(ConversionError):
    """The bytes are of no format that a plugin knows, or cannot be read without a password."""

    code = "invalid_file_type"
    default_reason = "unrecognized"


class UnsupportedConversion(ConversionError):
    """No path leads from the input's format to the requested one."""

    code = "unsupported_conversion"


class InvalidOption(ConversionError):
    """An option outside its range; `param` names it."""

    code = "invalid_parameter"


class TooLarge(ConversionError):
    """More of something than a job may hold or its target can.

    `reason` says of what: bytes, pixels, frames, pages, scans or elements; `details` give the limit.
    """

    code = "file_too_large"


class CorruptInput(ConversionError):
    """A recognised file that does not decode."""

    default_reason = "corrupt_input"


class StepFailed(ConversionError):
    """A step failed for a reason that does not lie in the input."""

    default_reason = "engine_error"


class OutOfMemory(ConversionError):
    """The job needed more memory than it may have."""

    default_reason = "out_of_memory"
    retryable = True


class TimedOut(ConversionError):
    """The job was killed on its deadline."""

    default_reason = "timeout"
    retryable = True


class WorkerCrashed(ConversionError):
    """The job's process died without an answer."""

    default_reason = "worker_crashed"
    retryable = True


def _kinds() -> dict[str, type[ConversionError]]:
    """The kinds above by name; kinds that plugins add travel as the nearest of these."""
    kinds = [ConversionError, UnknownFormat, UnsupportedConversion, InvalidOption, TooLarge, CorruptInput, StepFailed]
    return {kind.__name__: kind for kind in [*kinds, OutOfMemory, TimedOut, WorkerCrashed]}


def _text(value: object) -> str | None:
    return None if value is None else str(value)
