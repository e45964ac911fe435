"""The plan of an account: by the account, its purchases, and the settings."""

from config.pricing import Plan, PlanChanges
from config.settings import Settings
from storage.tables.accounts import StoredAccount


def plan_of(account: StoredAccount, settings: Settings) -> Plan:
    """The plan of an account with its own limits. Any purchase lifts an account from `free` to `paid` permanently.

    An account whose plan is no longer among the settings has the one that it would have without.
    """
    name = "paid" if settings.default_plan == "free" and account.credits_total_purchased else settings.default_plan
    plan = settings.all_plans.get(account.plan or name, settings.all_plans[name])
    changes = account.plan_changes
    return plan if changes is None else plan.changed(PlanChanges.model_validate_json(changes))
