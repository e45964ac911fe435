"""PublicError: the base of the errors of engine, storage and web whose message may be sent to a client.

It is the only module that engine and storage share with the rest, and imports none of ours.
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class PublicError(Exception):
    """An expected error. `str(error)` is a sentence for the client; `message` is that of errors that need no other.

    `code` is the code of the API, which has an HTTP status in web. `reason` narrows it, `param` names the field of the
    request at fault. A `retryable` request may succeed if it is repeated, after `retry_after` seconds if set. `details`
    holds JSON values.
    """

    message: ClassVar[str] = "The server failed to process this request."
    code: ClassVar[str] = "server_error"
    reason: str | None = None
    param: str | None = None
    retryable: ClassVar[bool] = False
    retry_after: int | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        reason: str | None = None,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message or self.message)
        self.reason = reason or self.reason
        self.param = param or self.param
        self.details = dict(details or {})
        self.retry_after = self.retry_after if retry_after is None else retry_after
