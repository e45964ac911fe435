"""The dashboard's page of webhooks: their state and deliveries, with forms."""

from typing import Any

from storage.tables.webhooks import EVENTS
from web.api.field_types import validate
from web.api.fields import WebhookFields
from web.services.accounts.accounts import Account
from web.site.dashboard import AccountPage, session_account, shown_errors
from web.site.pages import SIGN_IN_PATH, PageHandler

_PATH = f"{SIGN_IN_PATH}/webhooks"
_SECRET_COOKIE = "convertd_new_secret"  # a new secret, from its creation to the page that shows it
_SECRET_SECONDS = 60
_SHOWN_ATTEMPTS = 10  # per webhook


class WebhooksPage(AccountPage):
    """The webhooks of the account."""

    async def show(self, account: Account) -> None:
        secret = self.take_cookie(_SECRET_COOKIE)
        is_own = secret is not None and await self.services.webhooks.owns_secret(account.id, secret)
        await _write_page(self, account, secret=secret if is_own else None)


class NewWebhook(PageHandler):
    """Creates a webhook, and shows its secret once."""

    access = "session"

    async def post(self) -> None:
        account, form = session_account(self), self.input.web_form()
        async with shown_errors(self, account, _write_page):
            fields = validate(WebhookFields, {"url": form.get("url", "").strip()})
            issued = await self.services.webhooks.create(account.id, fields.url, fields.events)
            _redirect_to_secret(self, issued.secret)


class WebhookAction(PageHandler):
    """Rotates the secret of a webhook, tests it or deletes it."""

    access = "session"

    async def post(self, webhook_id: str, action: str) -> None:
        account, webhooks = session_account(self), self.services.webhooks
        async with shown_errors(self, account, _write_page):
            if action == "rotate":
                _redirect_to_secret(self, (await webhooks.rotate(account.id, webhook_id)).secret)
            else:
                await (webhooks.test if action == "test" else webhooks.delete)(account.id, webhook_id)
                self.redirect(_PATH, status=303)


class RedeliveryAction(PageHandler):
    """Sends a message again."""

    access = "session"

    async def post(self, delivery_id: str) -> None:
        account = session_account(self)
        async with shown_errors(self, account, _write_page):
            await self.services.webhooks.redeliver(account.id, delivery_id)
            self.redirect(_PATH, status=303)


class OwnSecretAction(PageHandler):
    """Makes or replaces the account's own secret, and shows it once."""

    access = "session"

    async def post(self) -> None:
        secret = await self.services.webhooks.replace_own_secret(session_account(self).id)
        return _redirect_to_secret(self, secret)


async def _write_page(page: PageHandler, account: Account, **values: Any) -> None:
    webhooks = page.services.webhooks
    shown = [
        (one, (await webhooks.list_attempts(account.id, one.webhook_id, limit=_SHOWN_ATTEMPTS, cursor=None)).values)
        for one in await webhooks.list_all(account.id)
    ]
    page.write_page(
        "dashboard_webhooks.html",
        **{"error": None, "secret": None, **values},
        webhooks=shown,
        events=EVENTS,
    )


def _redirect_to_secret(page: PageHandler, secret: str) -> None:
    """Redirects to the page, which shows the secret once: a reload of it makes no other."""
    page.set_private_cookie(_SECRET_COOKIE, secret, _SECRET_SECONDS)
    page.redirect(_PATH, status=303)
