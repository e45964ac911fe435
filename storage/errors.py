"""What can go wrong with what is kept. Each kind carries its public code; HTTP statuses are not known here.

StorageError     server_error
├─ InvalidKey    invalid_api_key
├─ NoCredits     no_credits
├─ Missing       not_found
├─ LastKey       invalid_parameter / last_key
├─ EmailTaken    invalid_parameter / email_taken
├─ BatchFull     invalid_parameter
├─ HoldLost      server_error                     retryable
├─ ClaimLost     server_error                     retryable
├─ OutcomeUnknown    server_error                 retryable
├─ StoreUnavailable  server_error                 retryable
└─ DatabaseBusy      not_ready                    retryable
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class StorageError(Exception):
    """Something that cannot be done; `str(error)` is a sentence for the client.

    `reason` narrows the code, `param` names the request field at fault, `details` holds JSON values only.
    """

    code: ClassVar[str] = "server_error"
    reason: ClassVar[str | None] = None
    param: ClassVar[str | None] = None
    retryable: ClassVar[bool] = False
    retry_after: ClassVar[int | None] = None  # seconds

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.details = dict(details or {})


class InvalidKey(StorageError):
    """No key, a key that is none of ours, or one that no longer works: nobody is told which."""

    code = "invalid_api_key"

    def __init__(self) -> None:
        super().__init__("The API key is missing or invalid.")


class NoCredits(StorageError):
    """The balance is below what the operation costs."""

    code = "no_credits"

    def __init__(self, balance: int, required: int) -> None:
        self.balance = balance
        self.required = required
        details = {"credits_remaining": balance, "credits_required": required}
        super().__init__("No credits are left for this operation; buy a pack.", details)


class NotFound(StorageError):
    """No such thing in this account, or one that has expired."""

    code = "not_found"

    def __init__(self, what: str) -> None:
        super().__init__(f"No such {what}.")


class LastKey(StorageError):
    """Without this key the account would have none that lasts."""

    code = "invalid_parameter"
    reason = "last_key"

    def __init__(self) -> None:
        super().__init__("The last key cannot be revoked; rotate it instead.")


class EmailTaken(StorageError):
    """The address has an account. For operators: the public is never told."""

    code = "invalid_parameter"
    reason = "email_taken"
    param = "email"

    def __init__(self) -> None:
        super().__init__("This e-mail address already has an account.")


class BatchFull(StorageError):
    """A batch has as many files as it may have."""

    code = "invalid_parameter"
    param = "file"

    def __init__(self, limit: int) -> None:
        super().__init__(f"A batch holds {limit} files at most.", {"max_files": limit})


class HoldLost(StorageError):
    """The hold was settled or released before, by its expiry at the latest. Nothing has been charged by this."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("The operation took too long and was not charged.")


class ClaimLost(StorageError):
    """Another attempt has taken over the idempotency key, because the lease of this one had run out."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("The operation took too long; another attempt has taken its place.")


class CommitUnknown(StorageError):
    """The connection was lost during the commit: the transaction may have happened or not."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("The database was lost while it was saving.")


class StoreUnavailable(StorageError):
    """The store of the blobs does not answer, or does not do what it is asked to."""

    retryable = True

    def __init__(self) -> None:
        super().__init__("The store of the files cannot be reached.")


class DatabaseBusy(StorageError):
    """The database is somebody else's for longer than is waited, or cannot be reached. Nothing has been changed."""

    code = "not_ready"
    retryable = True
    retry_after = 1

    def __init__(self) -> None:
        super().__init__("The database is busy; try again in a moment.")
