"""Errors of conversions. Each class carries the code of the public API; HTTP statuses are defined in the web layer.

ConversionError          processing_failed
├─ UnknownFormat         invalid_file_type
├─ UnsupportedConversion unsupported_conversion
├─ InvalidOption         invalid_parameter
├─ TooLarge              file_too_large
├─ CorruptInput          processing_failed / corrupt_input
├─ StepFailed            processing_failed / engine_error
├─ OutOfMemory           processing_failed / out_of_memory
│  └─ Killed             processing_failed / out_of_memory    retryable
├─ TimedOut              processing_failed / timeout          retryable
├─ WorkerCrashed         processing_failed / worker_crashed   retryable
└─ ExecutorUnavailable   not_ready                            retryable
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from config.errors import PublicError

_MAX_CAUSE = 300  # characters


class ConversionError(PublicError):
    """A failed conversion.

    `details` holds JSON values without nesting, or lists and dictionaries of them, because worker processes send
    errors as JSON. `cause` is for logs only: it can quote the file. `seconds` is how long a process ran the task; None
    if an executor has not measured it.
    """

    message = "The conversion failed."
    code = "processing_failed"
    seconds: float | None = None
    _cause: str | None = None

    @property
    def cause(self) -> str | None:
        """The exception that led to this one: the last line of its traceback, and the line of code that raised it."""
        return self._cause if self.__cause__ is None else _describe(self.__cause__)

    @cause.setter
    def cause(self, text: str | None) -> None:
        self._cause = text

    def as_json(self) -> dict[str, Any]:
        """Returns the error as JSON values for `from_json`."""
        return {
            "kind": next(base.__name__ for base in type(self).__mro__ if base.__name__ in _classes()),
            "message": str(self),
            "reason": self.reason,
            "param": self.param,
            "details": self.details,
            "seconds": self.seconds,
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> ConversionError:
        """Rebuilds an error from the values of `as_json`. An unknown class becomes ConversionError."""
        error_class = _classes().get(str(values.get("kind")), ConversionError)
        details = values.get("details")
        error = error_class(
            _text(values.get("message")),
            reason=_text(values.get("reason")),
            param=_text(values.get("param")),
            details=details if isinstance(details, dict) else None,
        )
        error.seconds = values.get("seconds")
        return error


class UnknownFormat(ConversionError):
    """The file's format is not supported, or the file needs a password."""

    code = "invalid_file_type"
    reason = "unrecognized"


class UnsupportedConversion(ConversionError):
    """The input's format cannot be converted to the requested one."""

    code = "unsupported_conversion"


class InvalidOption(ConversionError):
    """An option has an invalid value. `param` names the option."""

    code = "invalid_parameter"


class TooLarge(ConversionError):
    """The input exceeds a limit of tasks or of the target format.

    `reason` is the limited quantity: bytes, pixels, frames, pages, scans or elements. `details` holds the limit.
    """

    code = "file_too_large"


class CorruptInput(ConversionError):
    """The file's format is recognized, but its content cannot be decoded."""

    reason = "corrupt_input"


class StepFailed(ConversionError):
    """A step failed, and the input is not the cause."""

    reason = "engine_error"


class OutOfMemory(ConversionError):
    """The task exceeded its memory limit. It would do so again."""

    reason = "out_of_memory"


class Killed(OutOfMemory):
    """The worker process was killed, as the kernel does if the machine has no memory left."""

    retryable = True


class TimedOut(ConversionError):
    """The task exceeded its time limit and was killed."""

    reason = "timeout"
    retryable = True


class WorkerCrashed(ConversionError):
    """The worker process ended without a reply."""

    reason = "worker_crashed"
    retryable = True


class ExecutorUnavailable(ConversionError):
    """No process can run the task. The task is not the cause."""

    code = "not_ready"
    retryable = True
    retry_after = 5


def _classes() -> dict[str, type[ConversionError]]:
    """The classes of the errors of tasks, by name. An error of a plugin is sent as its nearest base class here."""
    classes = [ConversionError, UnknownFormat, UnsupportedConversion, InvalidOption, TooLarge, CorruptInput, StepFailed]
    return {
        error_class.__name__: error_class for error_class in [*classes, OutOfMemory, Killed, TimedOut, WorkerCrashed]
    }


def _describe(error: BaseException) -> str:
    """The innermost cause of an exception, such as `ValueError: too long (plugins/formats/png.py:80)`."""
    while error.__cause__ is not None:
        error = error.__cause__
    *_, last_line = traceback.format_exception_only(error)
    *_, frame = traceback.extract_tb(error.__traceback__) or [None]
    where = f" ({'/'.join(Path(frame.filename).parts[-2:])}:{frame.lineno})" if frame else ""
    return last_line.strip()[:_MAX_CAUSE] + where


def _text(value: object) -> str | None:
    return None if value is None else str(value)
