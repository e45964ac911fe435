"""The API's errors, the HTTP status of every error code, and the JSON envelope of an error."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from config.errors import PublicError
from storage.errors import DISK_FULL, InvalidKey
from storage.rate_limits import RateLimitStatus
from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.values import ErrorBody

STATUS: Mapping[str, int] = MappingProxyType({code: error.status for code, error in ERROR_CATALOGUE.items()})
"""The HTTP status of each error code."""


class ApiError(PublicError):
    """A refused request. `headers` are sent with the response."""

    headers: Mapping[str, str] = MappingProxyType({})


class KeyNotVerified(ApiError):
    """The API key is valid, but the account's email address is not verified."""

    code = "key_not_verified"
    message = "The account's email address is not verified. Open the link in the verification email."


class IdempotencyConflict(ApiError):
    """A request with the same idempotency key is still running."""

    code = "idempotency_conflict"
    retryable = True


class IdempotencyKeyReused(ApiError):
    """The idempotency key was used for a different request."""

    code = "idempotency_key_reused"


class InvalidParameter(ApiError):
    """A field, or the body itself, is missing or invalid."""

    code = "invalid_parameter"


class NotFound(ApiError):
    """The path or the resource does not exist, or the resource has expired."""

    code = "not_found"


class MethodNotAllowed(ApiError):
    """The path exists, but not with this method."""

    code = "method_not_allowed"

    def __init__(self, allowed: tuple[str, ...]) -> None:
        methods = ", ".join(allowed)
        super().__init__(f"This path supports {methods}.")
        self.headers = {"Allow": methods}


class RateLimited(ApiError):
    """Too many requests, or too many conversions at once. `retry_after` is in seconds.

    `limit` is the rate limit that the request exceeds, if it is one; the headers of the response show it.
    """

    code = "rate_limit_exceeded"
    retryable = True
    retry_after: int

    def __init__(
        self, message: str, *, retry_after: int, reason: str | None = None, limit: RateLimitStatus | None = None
    ) -> None:
        super().__init__(message, reason=reason, details={"retry_after": retry_after}, retry_after=retry_after)
        self.limit = limit


class FileTooLarge(ApiError):
    """The uploaded file is larger than the account's tier allows, in bytes."""

    code = "file_too_large"

    def __init__(self, max_file_size: int, param: str = "file") -> None:
        message = f"The file is larger than {max_file_size} bytes."
        super().__init__(message, reason="bytes", param=param, details={"max_file_size": max_file_size})


class BodyTooLarge(ApiError):
    """The body of a request without a file is larger than `limit` bytes."""

    code = "file_too_large"

    def __init__(self, limit: int) -> None:
        message = f"The body is larger than {limit} bytes."
        super().__init__(message, reason="bytes", param="body", details={"max_body_size": limit})


class StorageFull(ApiError):
    """The upload or the result would exceed the account's storage quota. Sizes are in bytes."""

    code = "file_too_large"

    def __init__(self, stored: int, max_stored: int, param: str | None = None) -> None:
        message = f"The storage quota of {max_stored} bytes is exceeded. Delete files, or wait until they expire."
        details = {"max_stored_bytes": max_stored, "stored_bytes": stored}
        super().__init__(message, reason="storage", param=param, details=details)


class RangeNotSatisfiable(ApiError):
    """The requested range starts after the end of the file of `size` bytes."""

    code = "range_not_satisfiable"

    def __init__(self, size: int) -> None:
        message = f"The requested range starts after the end of the file, which has {size} bytes."
        super().__init__(message, details={"size": size})
        self.headers = {"Content-Range": f"bytes */{size}"}


class RequestTimeout(ApiError):
    """The request arrives too slowly."""

    code = "request_timeout"
    retryable = True


class CheckoutUnavailable(ApiError):
    """The payment provider cannot be reached, or returned an error. No purchase was opened."""

    reason = "checkout_unavailable"
    retryable = True
    message = "The payment provider does not respond. Try again later."


class CheckoutNotConfigured(ApiError):
    """No payment provider is configured."""

    reason = "checkout_not_configured"
    message = "Credits cannot be bought on this server."


class EmailNotConfigured(ApiError):
    """No mail server is configured, and the server is not for use on this machine only."""

    reason = "email_not_configured"
    message = "This server does not send email, so you cannot register."


class RegistrationClosed(NotFound):
    """Nobody can register here."""

    reason = "registration_closed"
    message = "Registration is closed: ask the operator of this service for an account."


class SignInUnavailable(ApiError):
    """The sign-in service cannot be reached, or does not respond as it should."""

    reason = "sign_in_unavailable"
    message = "The sign-in service cannot be reached. Try again later."


class SignInRefused(InvalidParameter):
    """The OpenID Connect provider has not confirmed a person who may sign in."""

    reason = "sign_in_refused"


class NotReady(ApiError):
    """The service cannot process requests at the moment."""

    code = "not_ready"
    retryable = True


class NoSpace(NotReady):
    """The disk is full."""

    reason = "disk_full"
    retry_after = 30
    message = "The server has no disk space left for files."


class ServerError(ApiError):
    """An unexpected exception. The log has the traceback."""


def public_error(error: BaseException | None) -> PublicError:
    """The error to send to the client: `error` itself, NoSpace, or ServerError for an unexpected exception."""
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return NoSpace()
    return error if isinstance(error, PublicError) else ServerError()


def malformed(message: str, *, reason: str = "malformed") -> InvalidParameter:
    """The error for a malformed request."""
    return InvalidParameter(message, reason=reason)


def error_headers(error: PublicError, *, replayed: bool = False) -> dict[str, str]:
    """The response headers of the error. `replayed`: an earlier request stored it."""
    headers = dict(error.headers) if isinstance(error, ApiError) else {}
    if replayed:
        headers["Idempotency-Replayed"] = "true"
    if isinstance(error, InvalidKey):
        headers["WWW-Authenticate"] = "Bearer"
    return headers if error.retry_after is None else {**headers, "Retry-After": str(error.retry_after)}


def error_body(error: PublicError) -> ErrorBody:
    """The error as JSON: code, message, retryable, doc_url, and param, reason, details where set."""
    doc_url = f"/docs/errors#{error.code}"
    body = ErrorBody(code=error.code, message=str(error), retryable=error.retryable, doc_url=doc_url)
    if error.param:
        body["param"] = error.param
    if error.reason:
        body["reason"] = error.reason
    if error.details:
        body["details"] = error.details
    return body


def envelope(error: PublicError, request_id: str) -> dict[str, Any]:
    """The JSON body of an error response."""
    return {"error": {**error_body(error), "request_id": request_id}}
