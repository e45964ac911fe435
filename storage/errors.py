"""Errors of the storage package. Each class has its public code; HTTP statuses are assigned in web."""

import errno

from config.errors import PublicError

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""The error numbers of an OSError that means that a disk is full."""


class StorageError(PublicError):
    """Base class of the errors of stored data."""


class InvalidKey(StorageError):
    """The API key is missing, malformed, unknown, expired or revoked. Clients cannot distinguish these cases."""

    code = "invalid_api_key"
    message = "The API key is missing or invalid."


class NoCredits(StorageError):
    """The balance is below the price of the operation."""

    code = "no_credits"

    def __init__(self, balance: int, required: int) -> None:
        self.balance = balance
        self.required = required
        details = {"credits_remaining": balance, "credits_required": required}
        super().__init__("No credits are left for this operation.", details=details)


class NotFound(StorageError):
    """The account has no such object, or it has expired."""

    code = "not_found"

    def __init__(self, kind: str) -> None:
        super().__init__(f"No such {kind}.")


class LastKey(StorageError):
    """The account would be left without a key that does not expire."""

    code = "invalid_parameter"
    reason = "last_key"
    message = "The last key cannot be revoked; rotate it instead."


class TooManyKeys(StorageError):
    """The account has `limit` valid keys."""

    code = "invalid_parameter"
    reason = "too_many_keys"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The account has {limit} API keys. Revoke one of them first.")


class TooManyWebhooks(StorageError):
    """The account has `limit` webhooks."""

    code = "invalid_parameter"
    reason = "too_many"

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"The account has {limit} webhooks. Delete one of them first.", details={"max_webhooks": limit}
        )


class TooManyRotations(StorageError):
    """A secret of webhooks was replaced `limit` times within 24 hours. `retry_after` is in seconds."""

    code = "rate_limit_exceeded"
    reason = "rotations"
    retryable = True
    retry_after: int

    def __init__(self, limit: int, retry_after: int) -> None:
        super().__init__(
            f"The secret was replaced {limit} times within 24 hours.", details={"retry_after": retry_after}
        )
        self.retry_after = retry_after


class TooManyPresets(StorageError):
    """The account has `limit` presets."""

    code = "invalid_parameter"
    reason = "too_many"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The account has {limit} presets. Delete one of them first.", details={"max_presets": limit})


class WebhookDisabled(StorageError):
    """The webhook has ended, so nothing is delivered to it."""

    code = "invalid_parameter"
    reason = "webhook_disabled"
    message = "The webhook is disabled. Delete it and create another one."


class EmailTaken(StorageError):
    """The email address already has an account. Shown to operators only: the API must not reveal who has one."""

    code = "invalid_parameter"
    reason = "email_taken"
    param = "email"
    message = "This email address already has an account."


class BatchFull(StorageError):
    """The batch has reached its maximum number of files."""

    code = "invalid_parameter"
    param = "file"

    def __init__(self, limit: int) -> None:
        super().__init__(f"A batch has at most {limit} files.", details={"max_files": limit})


class QueueFull(StorageError):
    """The account has `limit` jobs that have not ended."""

    code = "rate_limit_exceeded"
    reason = "queue_full"
    retryable = True
    retry_after = 10

    def __init__(self, limit: int) -> None:
        super().__init__(f"The account has {limit} jobs that wait or run.", details={"retry_after": self.retry_after})


class JobLost(StorageError):
    """The job has ended, or another server runs it. Nothing was changed by this call."""

    retryable = True
    message = "The job was cancelled, or another server runs it."


class HoldLost(StorageError):
    """The hold was settled, released or has expired. Nothing was charged by this call."""

    retryable = True
    message = "The operation took too long and was not charged."


class ClaimLost(StorageError):
    """The server was stopped for so long that another attempt could claim the idempotency key."""

    retryable = True
    message = "The operation took too long; another attempt has replaced it."


class CommitUnknown(StorageError):
    """The connection was lost during COMMIT: the transaction may or may not have been committed."""

    retryable = True
    message = "The connection to the database was lost while saving."


class StoreUnavailable(StorageError):
    """The blob store does not respond, or an operation on it failed."""

    code = "not_ready"
    retryable = True
    retry_after = 5
    message = "The file store is unavailable."


class DatabaseBusy(StorageError):
    """The database is locked for longer than the timeout, or unreachable. Nothing was changed."""

    code = "not_ready"
    retryable = True
    retry_after = 1
    message = "The database is busy; try again in a moment."
