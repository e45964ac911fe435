"""Presets: fields of requests that an account keeps under a name."""

from dataclasses import dataclass

from storage.database.transaction import Transaction, columns, reading
from storage.errors import NotFound, TooManyPresets
from storage.field_types import Timestamp
from storage.tables.models import Account, Preset

MAX_PRESETS = 100


@dataclass(frozen=True)
class StoredPreset:
    """A preset. `fields` are the fields as JSON."""

    name: str
    fields: str
    created_at: Timestamp
    updated_at: Timestamp


def put(transaction: Transaction, account: str, name: str, fields: str) -> StoredPreset:
    """Creates or replaces a preset. Raises TooManyPresets."""
    # Locked, because two requests could each add the last one.
    transaction.select_for_update(Account.select().where(Account.id == account))
    now = transaction.now
    known = {preset.name: preset for preset in list_all(transaction, account)}
    if name in known:
        own = (Preset.account == account) & (Preset.name == name)
        transaction.execute(Preset.update(fields=fields, updated_at=now).where(own))
    elif len(known) >= MAX_PRESETS:
        raise TooManyPresets(MAX_PRESETS)
    else:
        row = {"account": account, "name": name, "fields": fields, "created_at": now, "updated_at": now}
        transaction.insert(Preset.insert(row))
    return get(transaction, account, name)


@reading
def list_all(transaction: Transaction, account: str) -> tuple[StoredPreset, ...]:
    """Returns the presets of the account, by name."""
    query = Preset.select(*columns(Preset, StoredPreset)).where(Preset.account == account)
    return transaction.values(StoredPreset, query.order_by(Preset.name))


@reading
def get(transaction: Transaction, account: str, name: str) -> StoredPreset:
    """Returns a preset of the account. Raises NotFound."""
    query = Preset.select(*columns(Preset, StoredPreset))
    found = transaction.values(StoredPreset, query.where((Preset.account == account) & (Preset.name == name)))
    if not found:
        raise NotFound("preset")
    return found[0]


def delete(transaction: Transaction, account: str, name: str) -> None:
    """Deletes a preset. Raises NotFound."""
    own = (Preset.account == account) & (Preset.name == name)
    if not transaction.execute(Preset.delete().where(own)):
        raise NotFound("preset")
