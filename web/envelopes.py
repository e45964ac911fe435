"""The envelope that all errors travel in, and what of them the client may see."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, TypeAlias

from engine.errors import ConversionError
from storage.errors import DatabaseBusy, InvalidKey, StorageError
from web.errors import ApiError, NoSpace, ServerError

_FULL = (errno.ENOSPC, errno.EDQUOT)

Shown: TypeAlias = ApiError | ConversionError | StorageError
"""Errors that the client may see."""


def public(error: BaseException | None) -> Shown:
    """The error that the client may see: this one, or a ServerError for what was not foreseen."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return NoSpace()
    return error if isinstance(error, Shown) else ServerError()


def headers(error: Shown) -> Mapping[str, str]:
    """The headers that go with the error."""
    if isinstance(error, InvalidKey):
        return {"WWW-Authenticate": "Bearer"}
    if isinstance(error, DatabaseBusy):
        return {"Retry-After": "1"}
    return error.headers if isinstance(error, ApiError) else {}


def told(error: Shown) -> dict[str, Any]:
    """What a client is told about the error."""
    optional = {"param": error.param, "reason": error.reason, "details": error.details}
    known = {"code": error.code, "message": str(error), "retryable": error.retryable}
    return known | {name: value for name, value in optional.items() if value}


def envelope(error: Shown, request_id: str) -> dict[str, Any]:
    """The body of an error's answer."""
    return {"error": {**told(error), "request_id": request_id}}
