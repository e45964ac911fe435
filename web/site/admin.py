"""Pages for admins: all accounts and the state of the service. Each change is in the audit log."""

import json
from typing import Any

from config.errors import PublicError
from config.pricing import PlanChanges
from config.settings import effective_settings
from storage.database import Transaction
from storage.errors import NoCredits
from storage.tables import accounts, api_keys, audit, jobs, ledger, totals
from storage.tables.accounts import StoredAccount
from web.api.errors import InvalidParameter, NotFound
from web.services.accounts import changes
from web.services.accounts.accounts import Account
from web.services.accounts.changes import account_change, apply_change, invitation, registration_fields
from web.services.accounts.email import invitation_email
from web.services.accounts.plans import plan_of
from web.site.dashboard import session_account, shown_errors
from web.site.pages import SIGN_IN_PATH, PageHandler

ADMIN_PATH = f"{SIGN_IN_PATH}/admin"
_SHOWN = 25  # accounts, actions and jobs
_LIMITS = tuple(name for name in PlanChanges.model_fields if name != "unmetered")


class AdminHandler(PageHandler):
    """A page for admins. For others, it does not exist."""

    access = "session"

    async def authorize(self) -> None:
        await super().authorize()
        if session_account(self).role != "admin":
            raise NotFound("No such page.")


class AdminPage(AdminHandler):
    """All accounts, the state of the service, its settings without secrets, and the audit log."""

    async def get(self) -> None:
        await _write_overview(self, session_account(self))


class AdminAccount(AdminHandler):
    """An account, with forms."""

    async def get(self, account_id: str) -> None:
        await _write_account(self, await self.services.database.run(_client, account_id))


class AdminInvitation(AdminHandler):
    """Makes an account, and shows the link to sign in to it, which is also sent where the server sends email."""

    async def post(self) -> None:
        admin, form, services = session_account(self), self.input.web_form(), self.services
        async with shown_errors(self, admin, _write_overview):
            fields = registration_fields(form.get("email", ""), form.get("name", ""))
            change = _change(self, {"plan": form.get("plan"), "role": form.get("role")})
            link = await services.database.run(
                lambda one: invitation(one, admin.id, services.settings, fields.email, fields.name, change)
            )
            if services.email_queue.enabled:
                services.email_queue.enqueue(invitation_email(fields.email, link, self.language))
            await _write_overview(self, admin, invitation_link=link)


class AdminChange(AdminHandler):
    """Changes an account: its plan, limits and role, its credits; or deletes it."""

    async def post(self, account_id: str, action: str) -> None:
        admin, form, database = session_account(self), self.input.web_form(), self.services.database
        account = await database.run(_client, account_id)
        async with shown_errors(self, account, _write_account):
            if action == "delete":
                if account.id == admin.id:
                    raise InvalidParameter("You cannot delete your own account here.", param="account")
                await self.services.files.discard(await database.run(changes.delete, admin.id, account))
                return self.redirect(ADMIN_PATH, status=303)
            if action == "grant":
                await database.run(_grant, admin.id, account, form.get("credits", ""), form.get("reason", ""))
            else:
                given = {name: form.get(name) for name in ("plan", "role", *_LIMITS)}
                change = _change(self, {**given, "unmetered": form.get("unmetered")}, reset=True)
                if account.id == admin.id and change.role == "member":
                    raise InvalidParameter("You cannot end your own role as an admin.", param="role")
                await database.run(apply_change, admin.id, account, change)
            return self.redirect(f"{ADMIN_PATH}/accounts/{account.id}", status=303)


def _change(page: PageHandler, given: dict[str, str | None], *, reset: bool = False) -> Any:
    """The checked values of a form, whose empty fields set nothing. Raises InvalidParameter."""
    try:
        values = {name: value.strip() or None for name, value in given.items() if value is not None}
        return account_change(page.services.settings, values, reset=reset)
    except ValueError as error:
        message = str(error)
        raise InvalidParameter(f"{message[0].upper()}{message[1:]}.", reason="out_of_range") from None


def _client(transaction: Transaction, account_id: str) -> StoredAccount:
    """The account of a client. Raises NotFound for a deleted one, too."""
    account = accounts.get(transaction, account_id)
    if account.email in ("", accounts.TRIAL_EMAIL):
        raise NotFound("No such account.")
    return account


def _grant(transaction: Transaction, admin: str, account: StoredAccount, amount: str, reason: str) -> None:
    try:
        credits = int(amount)
    except ValueError:
        credits = 0
    if credits == 0 or abs(credits) > accounts.MAX_GRANT or not reason.strip():
        raise InvalidParameter("A grant needs a number of credits other than 0, and a reason.", param="credits")
    try:
        changes.grant(transaction, admin, account, credits, reason.strip())
    except NoCredits as error:
        raise InvalidParameter(f"The account has only {error.balance} credits.", param="credits") from None


async def _write_account(page: PageHandler, account: StoredAccount, error: PublicError | None = None) -> None:
    services = page.services
    database = services.database
    found = await database.run(jobs.list_page, account.id, limit=_SHOWN)
    own = json.loads(account.plan_changes or "{}")
    page.write_page(
        "admin_account.html",
        error=error,
        account=account,
        own=own,
        limits=_LIMITS,
        plan=plan_of(account, services.settings),
        plans=services.settings.all_plans,
        stored=await services.files.stored_bytes(account.id),
        keys=await database.run(api_keys.list_keys, account.id),
        grants=await database.run(ledger.list_grants, account.id),
        jobs=found.values,
    )


async def _write_overview(
    page: PageHandler, _admin: Account, error: PublicError | None = None, invitation_link: str | None = None
) -> None:
    services = page.services
    database = services.database
    search, cursor = page.get_query_argument("search", ""), page.get_query_argument("cursor", None)
    try:
        found = await database.run(accounts.search, search, limit=_SHOWN, cursor=cursor)
    except ValueError:
        raise NotFound("No such page.") from None
    actions = await database.run(audit.list_page, limit=_SHOWN)
    page.write_page(
        "admin.html",
        error=error,
        invitation=invitation_link,
        search=search,
        found=found,
        plan_names={one.id: plan_of(one, services.settings).name for one in found.values},
        plans=services.settings.all_plans,
        state=await services.readiness.state(),
        queue=await database.run(jobs.read_state),
        admission=services.admission,
        totals=await database.run(totals.latest),
        layers=services.metrics.installation.sandbox_layers,
        plugins=services.registry.plugins,
        settings=effective_settings(services.settings),
        actions=actions.values,
        emails=await database.run(
            accounts.emails, {name for one in actions.values for name in (one.actor, one.subject)}
        ),
    )
