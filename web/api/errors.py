"""The API's own errors, and the status of every code."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

from engine.errors import ConversionError
from storage.errors import DatabaseBusy, InvalidKey, StorageError

STATUS: Mapping[str, int] = MappingProxyType(
    {
        "invalid_api_key": 401,
        "key_not_verified": 403,
        "rate_limit_exceeded": 429,
        "no_credits": 402,
        "invalid_file_type": 400,
        "file_too_large": 413,
        "unsupported_conversion": 400,
        "processing_failed": 500,
        "invalid_parameter": 400,
        "not_found": 404,
        "server_error": 500,
        "method_not_allowed": 405,
        "idempotency_conflict": 409,
        "idempotency_key_reused": 422,
        "range_not_satisfiable": 416,
        "not_ready": 503,
        "request_timeout": 408,
    }
)


class ApiError(Exception):
    """A request that is refused; `str(error)` is a sentence for the client.

    `reason` narrows the code, `param` names the field at fault, `retry_after` is in seconds.
    """

    code: ClassVar[str] = "server_error"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.param = param
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        self.retry_after = retry_after


class KeyNotVerified(ApiError):
    """The key is good, but its account's e-mail address is not verified yet."""

    code = "key_not_verified"


class IdempotencyConflict(ApiError):
    """The same request, under the same idempotency key, is still running."""

    code = "idempotency_conflict"
    retryable = True


class IdempotencyKeyReused(ApiError):
    """The idempotency key belongs to another request."""

    code = "idempotency_key_reused"


class InvalidParameter(ApiError):
    """A field, or the body itself, is missing or not what it should be."""

    code = "invalid_parameter"


class NotFound(ApiError):
    """No such path, or no such thing in this account, or one that has expired."""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """The path exists, the verb does not."""

    code = "method_not_allowed"

    def __init__(self, allowed: tuple[str, ...]) -> None:
        verbs = ", ".join(allowed)
        super().__init__(f"This path answers to {verbs}.", headers={"Allow": verbs})


class RateLimited(ApiError):
    """Too many requests, or too much work at once; `retry_after` is in seconds."""

    code = "rate_limit_exceeded"
    retryable = True
    retry_after: int

    def __init__(self, message: str, *, retry_after: int, reason: str | None = None) -> None:
        super().__init__(message, reason=reason, details={"retry_after": retry_after}, retry_after=retry_after)


class FileTooLarge(ApiError):
    """More bytes than the account's tier takes."""

    code = "file_too_large"

    def __init__(self, max_file_size: int) -> None:
        message = f"The file is larger than {max_file_size} bytes."
        super().__init__(message, reason="bytes", param="file", details={"max_file_size": max_file_size})


class StorageFull(ApiError):
    """The account keeps `stored` bytes of uploads, and with this one it would be more than it may."""

    code = "file_too_large"

    def __init__(self, stored: int, max_stored: int) -> None:
        message = f"Your files may take {max_stored} bytes in all; delete some, or wait until they expire."
        details = {"max_stored_bytes": max_stored, "stored_bytes": stored}
        super().__init__(message, reason="storage", param="file", details=details)


class RangeNotSatisfiable(ApiError):
    """The part of a file that is asked for lies beyond its end."""

    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        message = f"The file has {size} bytes."
        super().__init__(message, details={"size": size}, headers={"Content-Range": f"bytes */{size}"})


class RequestTimeout(ApiError):
    """A request that comes too slowly."""

    code = "request_timeout"
    retryable = True


class CheckoutUnavailable(ApiError):
    """The payment provider could not be asked, or would not. Nothing has been bought."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("The payment provider does not answer; try again later.", reason="checkout_unavailable")


class CheckoutNotConfigured(ApiError):
    """Nobody has set up where payments go."""

    def __init__(self) -> None:
        super().__init__("Credits cannot be bought here at the moment.", reason="checkout_not_configured")


class NotReady(ApiError):
    """The service cannot work at the moment."""

    code = "not_ready"
    retryable = True


class NoSpace(NotReady):
    """There is no room on the disk."""

    def __init__(self) -> None:
        super().__init__("There is no room for files at the moment.", reason="disk_full", retry_after=30)


class ServerError(ApiError):
    """Something that nobody foresaw; the log knows more."""

    def __init__(self) -> None:
        super().__init__("The server failed to answer this request.")


_FULL = (errno.ENOSPC, errno.EDQUOT)

PublicError: TypeAlias = ApiError | ConversionError | StorageError
"""Errors that the client may see."""


def public_error(error: BaseException | None) -> PublicError:
    """The error that the client may see: this one, or a ServerError for what was not foreseen."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return NoSpace()
    return error if isinstance(error, PublicError) else ServerError()


def error_headers(error: PublicError) -> Mapping[str, str]:
    """The headers that go with the error."""
    if isinstance(error, InvalidKey):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, DatabaseBusy):
        return {"Retry-After": "1"}
    if not isinstance(error, ApiError):
        return {}
    retry = {} if error.retry_after is None else {"Retry-After": str(error.retry_after)}
    return {**error.headers, **retry}


def error_body(error: PublicError) -> dict[str, Any]:
    """What a client is told about the error."""
    optional = {"param": error.param, "reason": error.reason, "details": error.details}
    known = {"code": error.code, "message": str(error), "retryable": error.retryable}
    return known | {name: value for name, value in optional.items() if value}


def envelope(error: PublicError, request_id: str) -> dict[str, Any]:
    """The body of an error's answer."""
    return {"error": {**error_body(error), "request_id": request_id}}
