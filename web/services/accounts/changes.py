"""What operators and administrators change about accounts, checked, and recorded in the audit log."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import get_args

from pydantic import ValidationError

from config.pricing import FREE_CREDITS, PlanChanges
from config.settings import Settings
from storage.database import Transaction
from storage.tables import accounts, audit, email_verification
from storage.tables.accounts import Role, StoredAccount
from web.api.field_types import validate
from web.api.fields import RegistrationFields
from web.api.values import API

SIGN_IN_LINK = "/dashboard/sign-in-link"
"""The page that the link of an email to sign in leads to. The token is in the fragment of its URL."""


@dataclass(frozen=True)
class AccountChange:
    """The plan, the role and the limits to set; None where nothing is. With `reset`, others are removed before."""

    plan: str | None
    role: str | None
    limits: PlanChanges
    reset: bool


def account_change(settings: Settings, given: Mapping[str, object], *, reset: bool = False) -> AccountChange:
    """Checks the values by name: `plan`, `role`, and limits of a plan. Raises ValueError."""
    values = {name: value for name, value in given.items() if value is not None}
    plan, role = values.pop("plan", None), values.pop("role", None)
    if plan is not None and plan not in settings.all_plans:
        raise ValueError(f"there is no plan {plan}: the plans are {', '.join(settings.all_plans)}")
    if role is not None and role not in get_args(Role):
        raise ValueError(f"the role must be one of {', '.join(get_args(Role))}")
    try:
        limits = PlanChanges.model_validate(values)
    except ValidationError as error:
        lines = (f"{one['loc'][0]}: {one['msg']}" for one in error.errors())
        raise ValueError("; ".join(lines)) from None
    return AccountChange(None if plan is None else str(plan), None if role is None else str(role), limits, reset)


def apply_change(transaction: Transaction, actor: str, account: StoredAccount, change: AccountChange) -> StoredAccount:
    """Changes an account, and returns it."""
    kept = PlanChanges.model_validate_json("{}" if change.reset else account.plan_changes or "{}")
    limits = kept.model_copy(update=change.limits.model_dump(exclude_none=True))
    text = limits.model_dump_json(exclude_none=True)
    plan = change.plan or (None if change.reset else account.plan)
    values = {"plan": plan, "plan_changes": None if text == "{}" else text, "role": change.role or account.role}
    accounts.change(transaction, account.id, **values)
    audit.record(transaction, actor, "set", account.id, **{**values, "plan_changes": json.loads(text) or None})
    return accounts.get(transaction, account.id)


def grant(transaction: Transaction, actor: str, account: StoredAccount, credits: int, reason: str | None) -> int:
    """Adds credits, or removes them. Returns the balance. Raises NoCredits."""
    audit.record(transaction, actor, "grant", account.id, credits=credits, reason=reason)
    return accounts.grant(transaction, account.email, credits, reason=reason)


def delete(transaction: Transaction, actor: str, account: StoredAccount) -> tuple[str, ...]:
    """Deletes an account. Returns the keys of its blobs."""
    audit.record(transaction, actor, "delete", account.id)
    return accounts.delete(transaction, account.email)


def registration_fields(email: str, name: str) -> RegistrationFields:
    """An address and the name of its account, by default that of the address. Raises InvalidParameter."""
    return validate(RegistrationFields, {"email": email, "name": name or email.partition("@")[0][:100].ljust(2, ".")})


def invitation(
    transaction: Transaction, actor: str, settings: Settings, email: str, name: str, change: AccountChange
) -> str:
    """Makes an account for an address unless it has one, with this plan and role. Returns a link to sign in to it."""
    token = email_verification.invite(transaction, email, name, FREE_CREDITS).token
    account = accounts.find(transaction, email)
    assert account is not None
    audit.record(transaction, actor, "invite", account.id)
    if change.plan or change.role:
        apply_change(transaction, actor, account, change)
    return f"{settings.base_url.removesuffix(API)}{SIGN_IN_LINK}#token={token}"
