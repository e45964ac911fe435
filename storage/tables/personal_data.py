"""Everything that is kept about an account, for its owner: rows of all tables, without secrets and without charges."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from storage.database.transaction import Transaction, reading
from storage.field_types import format_timestamp
from storage.tables import models, webhook_models

_TABLES: Mapping[str, tuple[Any, str]] = MappingProxyType(
    {
        "account": (models.Account, "id"),
        "api_keys": (models.Key, "account"),
        "sign_ins": (models.Identity, "account"),
        "sessions": (models.DashboardSession, "account"),
        "files": (models.File, "account"),
        "batches": (models.Batch, "account"),
        "jobs": (models.Job, "account"),
        "presets": (models.Preset, "account"),
        "webhooks": (webhook_models.Webhook, "account"),
        "purchases": (models.Purchase, "account"),
        "ledger": (models.Entry, "account"),
        "usage_per_day": (models.UsageDay, "account"),
        "requests": (models.Request, "account"),
        "audit_log": (models.Audit, "subject"),
    }
)
_HIDDEN = ("sha256", "email_key", "source", "result", "request", "server", "boot", "fence", "actor")
"""Hashes, keys of the file store, repeated texts, and what is about servers or other people."""


@reading
def export(transaction: Transaction, account: str) -> dict[str, list[dict[str, Any]]]:
    """Returns the rows about an account by table. Times are in UTC. Each charge is part of `usage_per_day`."""
    exported = {}
    for name, (table, owner) in _TABLES.items():
        own = getattr(table, owner) == account
        if table is models.Entry:
            own &= table.kind.not_in(("charge", "archived"))
        exported[name] = [_shown(row) for row in transaction.all(table.select().where(own))]
    return exported


def _shown(row: Any) -> dict[str, Any]:
    values = {name: value for name, value in row.__data__.items() if name not in _HIDDEN}
    return {
        name: format_timestamp(value) if isinstance(value, int) and (name == "at" or name.endswith("_at")) else value
        for name, value in values.items()
    }
