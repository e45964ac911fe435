"""What outlives a request and how letters leave, opened as the settings have it."""

from __future__ import annotations

from config.settings import Settings
from storage.blobs import Blobs, open_blobs
from storage.database import Database
from storage.failover import FailoverLimiter
from storage.limits import Limiter, MemoryLimiter
from web.services.mail import Mailer, OutboxMailer, SmtpMailer


def open_database(settings: Settings) -> Database:
    """The database of the settings, which is made if it is not there. Blocks."""
    if settings.database_url is not None:
        return Database(settings.database_url.get_secret_value())
    path = settings.data_dir.absolute() / "convertd.db"
    return Database(f"sqlite:///{path}")


def blobs(settings: Settings) -> Blobs:
    """Where files are kept. Works on the disk."""
    url = settings.blob_url.get_secret_value() if settings.blob_url else None
    return open_blobs(url, settings.data_dir.absolute() / "blobs")


def limiter(settings: Settings) -> Limiter:
    """What counts requests."""
    local = MemoryLimiter()
    if settings.redis_url is None:
        return local
    from storage.redis_limits import RedisLimiter  # noqa: PLC0415, as its library takes long to load, and few need it

    return FailoverLimiter(RedisLimiter(settings.redis_url.get_secret_value()), local)


def mailer(settings: Settings) -> Mailer:
    """What sends letters."""
    if settings.smtp_url is None:
        return OutboxMailer(settings.data_dir.absolute() / "outbox", settings.mail_from)
    return SmtpMailer(settings.smtp_url.get_secret_value(), settings.mail_from)
