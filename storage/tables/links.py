"""Links to results, which work without an API key. They are signed, not stored, and end with their file."""

import hmac
from base64 import urlsafe_b64encode
from dataclasses import dataclass

from storage.database.transaction import Transaction, reading
from storage.errors import NotFound
from storage.field_types import Timestamp
from storage.tables import files, models
from storage.tables.files import File


@dataclass(frozen=True)
class Link:
    """A link until `expires_at`. `token` is the id of its file, the time and a signature of both."""

    token: str
    expires_at: Timestamp


@reading
def create(transaction: Transaction, file: File, seconds: int) -> Link:
    """Returns a link to a file for some seconds, but for no longer than the file is stored."""
    expires_at = min(transaction.now + seconds, file.expires_at)
    content = f"{file.file_id}.{expires_at}"
    return Link(f"{content}.{_signature(transaction, content)}", expires_at)


@reading
def find(transaction: Transaction, token: str) -> File:
    """Returns the file of a link. Raises NotFound if the link is not valid, has expired, or its file is deleted."""
    content, _, signature = token.rpartition(".")
    if not hmac.compare_digest(_signature(transaction, content).encode(), signature.encode()):
        raise NotFound("link")
    file_id, _, expires_at = content.partition(".")
    if int(expires_at) <= transaction.now:
        raise NotFound("link")
    return files.get_of_any_account(transaction, file_id)


def _signature(transaction: Transaction, content: str) -> str:
    """The HMAC-SHA256 of the content by the key of the database, as URL-safe Base64 without padding."""
    table = models.SigningKey
    ((key,),) = transaction.rows(table.select(table.value).where(table.name == "links"))
    digest = hmac.digest(bytes.fromhex(key), content.encode(), "sha256")
    return urlsafe_b64encode(digest).rstrip(b"=").decode()
