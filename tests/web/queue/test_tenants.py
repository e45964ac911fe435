"""Tenants of the job queue: accounts, and the addresses of trials."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from storage.database import Database
from storage.tables import accounts, api_keys
from web.services.accounts.accounts import Account
from web.services.admission.fair_queue import Tenant
from web.services.admission.tenant_records import PROVING_JOBS


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    """A free account that was registered from an address."""
    database = Database(f"sqlite:///{tmp_path / 'convertd.db'}")
    stored = database.run_blocking(accounts.create, "a@b.org", "n", free_credits=50, address="192.0.2.1")
    yield Account.from_storage(stored, database.run_blocking(api_keys.issue, stored.id, "n").key.key_id)
    database.close()


def test_an_account_is_new_until_ten_conversions_or_a_purchase(account: Account) -> None:
    assert account.tenant == Tenant(account.id, 2, "192.0.2.1", is_new=True)
    assert replace(account, credits_used_total=PROVING_JOBS - 1).tenant.is_new
    assert not replace(account, credits_used_total=PROVING_JOBS).tenant.is_new
    assert not replace(account, credits_total_purchased=500).tenant.is_new


def test_each_address_of_trials_is_a_tenant_that_stays_new(account: Account) -> None:
    house = replace(account, credits_used_total=1000, address=None)
    one, two = (replace(house, client=address).tenant for address in ("192.0.2.1", "192.0.2.2"))
    assert one == replace(house, client="192.0.2.1").tenant != two
    assert house.id not in (one.id, two.id)
    assert one.is_new
