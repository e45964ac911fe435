"""The dashboard's page of webhooks: their state and deliveries, with forms."""

from typing import Any

from storage.errors import StorageError
from storage.field_types import format_timestamp
from storage.tables.webhooks import EVENTS
from web.api.errors import ApiError, PublicError
from web.api.field_types import validate
from web.api.fields import WebhookFields
from web.handlers.dashboard import session_account
from web.handlers.pages import SIGN_IN_PATH, PageHandler
from web.services.accounts import Account

_PATH = f"{SIGN_IN_PATH}/webhooks"
_SECRET_COOKIE = "convertd_new_secret"  # a new secret, from its creation to the page that shows it
_SECRET_SECONDS = 60
_SHOWN_ATTEMPTS = 10  # per webhook


class WebhooksPage(PageHandler):
    """The webhooks of the account that is signed in, or the form to sign in."""

    access = "form"

    async def get(self) -> None:
        account = await self.authorization.find_session()
        if account is None:
            return self.write_sign_in_page()
        secret = self.get_cookie(_SECRET_COOKIE)
        if secret is not None:
            self.clear_cookie(_SECRET_COOKIE, path=SIGN_IN_PATH)
            secret = secret if await self.services.webhooks.owns_secret(account.id, secret) else None
        return await _write_page(self, account, secret=secret)


class NewWebhook(PageHandler):
    """Creates a webhook, and shows its secret once."""

    access = "session"

    async def post(self) -> None:
        account, form = session_account(self), self.input.web_form()
        try:
            fields = validate(WebhookFields, {"url": form.get("url", "").strip()})
            issued = await self.services.webhooks.create(account.id, fields.url, fields.events)
        except (ApiError, StorageError) as error:
            return await _write_error(self, account, error)
        return _redirect_to_secret(self, issued.secret)


class WebhookAction(PageHandler):
    """Rotates the secret of a webhook, tests it or deletes it."""

    access = "session"

    async def post(self, webhook_id: str, action: str) -> None:
        account, webhooks = session_account(self), self.services.webhooks
        try:
            if action == "rotate":
                return _redirect_to_secret(self, (await webhooks.rotate(account.id, webhook_id)).secret)
            await (webhooks.test if action == "test" else webhooks.delete)(account.id, webhook_id)
        except StorageError as error:
            return await _write_error(self, account, error)
        return self.redirect(_PATH, status=303)


class RedeliveryAction(PageHandler):
    """Sends a message again."""

    access = "session"

    async def post(self, delivery_id: str) -> None:
        account = session_account(self)
        try:
            await self.services.webhooks.redeliver(account.id, delivery_id)
        except StorageError as error:
            return await _write_error(self, account, error)
        return self.redirect(_PATH, status=303)


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
        format_timestamp=format_timestamp,
    )


async def _write_error(page: PageHandler, account: Account, error: PublicError) -> None:
    """Responds with the page, which shows the error, and with the error's status."""
    page.set_error(error)
    await _write_page(page, account, error=error)


def _redirect_to_secret(page: PageHandler, secret: str) -> None:
    """Redirects to the page, which shows the secret once: a reload of it makes no other."""
    page.set_private_cookie(_SECRET_COOKIE, secret, _SECRET_SECONDS)
    page.redirect(_PATH, status=303)
