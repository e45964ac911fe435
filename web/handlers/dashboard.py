"""The dashboard of the signed-in account: balance, usage, requests, API keys and purchases, with forms."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from config.pricing import MIB, PACKS, TIERS
from storage.errors import InvalidKey, StorageError
from storage.tables.api_keys import IssuedKey
from storage.tables.purchases import Purchase
from web.api.errors import ApiError, NotFound, PublicError
from web.api.fields import NewKeyFields, PurchaseFields, validate
from web.api.times import Period, parse_period, timestamp
from web.handlers.pages import PageHandler
from web.services import usage_report
from web.services.accounts import SESSION_LIFETIME, Account
from web.services.checkout import DEFAULT_LANGUAGE, format_amount, payment_status
from web.services.serializers import API, usage_csv

_PATH = "/dashboard"
_COOKIE = "convertd_session"
_NEW_KEY_COOKIE = "convertd_new_key"  # the text of a new API key, from its creation to the page that shows it
_NEW_KEY_SECONDS = 60
_RELOAD_SECONDS = 5  # while a payment is being confirmed
_SHOWN_REQUESTS = 25
_GRACE_PERIOD = 86_400  # seconds that a replaced key stays valid


class DashboardHandler(PageHandler):
    """A page of the signed-in account."""

    access = "address"

    async def signed_in(self) -> Account | None:
        """The account of the browser's session, if it has one."""
        token = self.get_cookie(_COOKIE)
        if token is None:
            return None
        try:
            return await self.services.accounts.session_account(token)
        except InvalidKey:
            return None

    def chosen_period(self) -> Period:
        """The period of the query, or the last 30 days. Raises InvalidParameter."""
        return parse_period(self.get_query_argument("period", None) or _last_month(), int(time.time()))

    def set_private_cookie(self, name: str, value: str, max_age: int) -> None:
        """Sets a cookie that only the dashboard's requests send, and that scripts cannot read."""
        secure = self.services.settings.base_url.startswith("https://")
        self.set_cookie(name, value, path=_PATH, max_age=max_age, httponly=True, samesite="Strict", secure=secure)

    def redirect_to_new_key(self, issued: IssuedKey) -> None:
        """Redirects to the dashboard, which shows the key once: a reload of it creates no other key."""
        # In a cookie, because any server can receive the next request, and URLs are logged.
        self.set_private_cookie(_NEW_KEY_COOKIE, issued.text, _NEW_KEY_SECONDS)
        self.redirect_to(_PATH)

    async def take_new_key(self, account: Account) -> str | None:
        """The text of an API key that was just created, once."""
        text = self.get_cookie(_NEW_KEY_COOKIE)
        if text is None:
            return None
        self.clear_cookie(_NEW_KEY_COOKIE, path=_PATH)
        return text if await self.services.accounts.owns_key(account.id, text) else None

    async def write_dashboard(self, account: Account, **values: Any) -> None:
        """Responds with the dashboard."""
        period, accounts = self.chosen_period(), self.services.accounts
        report = await accounts.usage(account.id, period.start, period.end)
        requests = await self.services.request_log.latest(account.id)
        self.write_page(
            "dashboard.html",
            **{"error": None, "purchase": None, "issued": None, **values},
            account=account,
            period=period,
            report=report,
            days=usage_report.daily_chart(report.by_day, period.start, period.end),
            pairs=usage_report.pair_bars(report.by_conversion),
            charts=usage_report,
            credits_per_day=usage_report.credits_per_day(account, report, period),
            describe_days=usage_report.describe_days,
            months=usage_report.recent_months(account),
            keys=await accounts.list_keys(account.id),
            requests=requests[:_SHOWN_REQUESTS],
            errors=usage_report.error_summary(requests),
            shown_requests=_SHOWN_REQUESTS,
            packs=tuple(PACKS.values()),
            describe_price=usage_report.describe_price,
            max_mib=TIERS["paid"].max_file_size // MIB,
            payments=await self.services.payments.checkout.list_payments(account.id),
            format_amount=format_amount,
            payment_status=payment_status,
            timestamp=timestamp,
            format_size=usage_report.format_size,
        )

    async def write_dashboard_error(self, account: Account, error: PublicError) -> None:
        """Responds with the dashboard, which shows the error, and with the error's status."""
        self.set_error(error)
        await self.write_dashboard(account, error=error)


class Dashboard(DashboardHandler):
    """The dashboard, or the form to sign in."""

    async def get(self) -> None:
        account = await self.signed_in()
        if account is not None:
            purchase = await self._completed_purchase(account)
            if purchase is not None and purchase.state == "open":  # the provider confirms the payment within seconds
                self.set_header("Refresh", str(_RELOAD_SECONDS))
            await self.write_dashboard(account, purchase=purchase, issued=await self.take_new_key(account))
        elif self.request.headers.get("Sec-Fetch-Site") == "cross-site":
            # Browsers do not send the cookie on navigation from another site, such as the checkout. A reload does.
            self.set_header("Refresh", "0")
            self.write_page("redirect.html", url=self.request.uri)
        else:
            self.write_page("sign_in.html", error=None)

    async def _completed_purchase(self, account: Account) -> Purchase | None:
        """The purchase whose checkout the buyer returns from, unless it was cancelled."""
        purchase_id = self.get_query_argument("purchase", None)
        if purchase_id is None or self.get_query_argument("cancelled", None) is not None:
            return None
        return await self.services.payments.checkout.find_of_account(account.id, purchase_id)


class Session(DashboardHandler):
    """Signs in with an API key, and out."""

    async def post(self, action: str) -> None:
        if action == "sign-out":
            await self.services.accounts.sign_out(self.get_cookie(_COOKIE, ""))
            self.clear_cookie(_COOKIE, path=_PATH)
            return self.redirect_to("/")
        try:
            token = await self.services.accounts.sign_in(self.web_form().get("key", "").strip())
        except InvalidKey as error:
            await self.authorization.count_failed_login()
            return self.write_error_page(error, "sign_in.html")
        except ApiError as error:
            return self.write_error_page(error, "sign_in.html")
        self.set_private_cookie(_COOKIE, token, SESSION_LIFETIME)
        return self.redirect_to(_PATH)


class NewKey(DashboardHandler):
    """Creates an API key, and shows it once."""

    async def post(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to(_PATH)
        try:
            name = validate(NewKeyFields, {"name": self.web_form().get("name") or account.name}).name
            issued = await self.services.accounts.issue_key(account.id, name or account.name)
        except (ApiError, StorageError) as error:
            return await self.write_dashboard_error(account, error)
        return self.redirect_to_new_key(issued)


class KeyChange(DashboardHandler):
    """Replaces or revokes an API key."""

    async def post(self, key_id: str, change: str) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to(_PATH)
        accounts = self.services.accounts
        try:
            if change == "rotate":
                return self.redirect_to_new_key(await accounts.rotate_key(account.id, key_id, _GRACE_PERIOD))
            await accounts.revoke_key(account.id, key_id)
        except StorageError as error:
            return await self.write_dashboard_error(account, error)
        return self.redirect_to(f"{_PATH}#keys")


class BuyCredits(DashboardHandler):
    """Opens a checkout for a pack of credits, and redirects to it."""

    async def post(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to(_PATH)
        try:
            pack = validate(PurchaseFields, self.web_form()).pack
            opened = await self.services.payments.checkout.purchase(account, pack, DEFAULT_LANGUAGE)
        except ApiError as error:
            return await self.write_dashboard_error(account, error)
        # Not a 303: the Content-Security-Policy allows forms to lead to this server only.
        self.set_header("Refresh", f"0; url={opened.session.url}")
        return self.write_page("redirect.html", url=opened.session.url)


class Receipt(DashboardHandler):
    """A paid purchase, to print."""

    async def get(self, purchase_id: str) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to(_PATH)
        purchase = await self.services.payments.checkout.find_of_account(account.id, purchase_id)
        if purchase is None or purchase.paid_at is None:
            raise NotFound("No such receipt.")
        return self.write_page(
            "receipt.html",
            account=account,
            purchase=purchase,
            paid_at=timestamp(purchase.paid_at),
            amount=format_amount(purchase),
            status=payment_status(purchase),
            service=self.services.settings.base_url.removesuffix(API),
        )


class UsageCsv(DashboardHandler):
    """Usage by day as CSV."""

    async def get(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to(_PATH)
        period = self.chosen_period()
        report = await self.services.accounts.usage(account.id, period.start, period.end)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="convertd-{period.name}.csv"')
        return self.write(usage_csv(report.by_day))


def _last_month() -> str:
    return f"{datetime.now(UTC) - timedelta(days=29):%Y-%m-%d}"
