"""The dashboard: balance, usage, requests and API keys of the signed-in account. Forms change them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from config.pricing import CURRENCY, PACKS
from storage.api_keys import IssuedKey
from storage.errors import InvalidKey, StorageError
from web.api.errors import ApiError, PublicError
from web.api.fields import NewKeyFields, PurchaseFields, validate
from web.api.times import Period, parse_period, timestamp
from web.handlers.pages import PageHandler
from web.services import usage_report
from web.services.accounts import SESSION_LIFETIME, Account
from web.services.checkout import DEFAULT_LANGUAGE
from web.services.serializers import usage_csv

_COOKIE = "convertd_session"
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

    async def write_dashboard(self, account: Account, issued: IssuedKey | None = None, **values: Any) -> None:
        """Responds with the dashboard. Shows the new API key `issued`, if any."""
        period, accounts = self.chosen_period(), self.services.accounts
        report = await accounts.usage(account.id, period.start, period.end)
        requests = await self.services.request_log.latest(account.id)
        self.write_page(
            "dashboard.html",
            **{"error": None, "purchase": None, **values},
            account=account,
            issued=issued,
            period=period,
            report=report,
            days=usage_report.daily_chart(report.by_day, period.start, period.end),
            pairs=usage_report.pair_bars(report.by_conversion),
            charts=usage_report,
            credits_per_day=usage_report.credits_per_day(account, report, period),
            describe_days=usage_report.describe_days,
            months=usage_report.recent_months(account),
            keys=await accounts.list_keys(account.id),
            requests=requests,
            errors=usage_report.error_summary(requests),
            packs=tuple(PACKS.values()),
            currency=CURRENCY,
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
            await self.write_dashboard(account, purchase=self.get_query_argument("purchase", None))
        elif self.request.headers.get("Sec-Fetch-Site") == "cross-site":
            # Browsers do not send the cookie on navigation from another site, such as the checkout. A reload does.
            self.set_header("Refresh", "0")
            self.write_page("redirect.html", url=self.request.uri)
        else:
            self.write_page("sign_in.html", error=None)


class Session(DashboardHandler):
    """Signs in with an API key, and out."""

    async def post(self, action: str) -> None:
        if action == "sign-out":
            await self.services.accounts.sign_out(self.get_cookie(_COOKIE, ""))
            self.clear_cookie(_COOKIE, path="/dashboard")
            return self.redirect_to("/")
        try:
            token = await self.services.accounts.sign_in(self.web_form().get("key", "").strip())
        except InvalidKey as error:
            await self.authorization.count_failed_login()
            return self.write_error_page(error, "sign_in.html")
        except ApiError as error:
            return self.write_error_page(error, "sign_in.html")
        secure = self.services.settings.base_url.startswith("https://")
        self.set_cookie(
            _COOKIE, token, path="/dashboard", max_age=SESSION_LIFETIME, httponly=True, samesite="Strict", secure=secure
        )
        return self.redirect_to("/dashboard")


class NewKey(DashboardHandler):
    """Creates an API key, and shows it once."""

    async def post(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to("/dashboard")
        try:
            name = validate(NewKeyFields, {"name": self.web_form().get("name") or account.name}).name
        except ApiError as error:
            return await self.write_dashboard_error(account, error)
        issued = await self.services.accounts.issue_key(account.id, name or account.name)
        return await self.write_dashboard(account, issued)


class KeyChange(DashboardHandler):
    """Replaces or revokes an API key."""

    async def post(self, key_id: str, change: str) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to("/dashboard")
        issued, accounts = None, self.services.accounts
        try:
            if change == "rotate":
                issued = await accounts.rotate_key(account.id, key_id, _GRACE_PERIOD)
            else:
                await accounts.revoke_key(account.id, key_id)
        except StorageError as error:
            return await self.write_dashboard_error(account, error)
        return await self.write_dashboard(account, issued) if issued else self.redirect_to("/dashboard#keys")


class BuyCredits(DashboardHandler):
    """Opens a checkout for a pack of credits, and redirects to it."""

    async def post(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to("/dashboard")
        try:
            pack = validate(PurchaseFields, self.web_form()).pack
            opened = await self.services.payments.checkout.purchase(account, pack, DEFAULT_LANGUAGE)
        except ApiError as error:
            return await self.write_dashboard_error(account, error)
        # Not a 303: the Content-Security-Policy allows forms to lead to this server only.
        self.set_header("Refresh", f"0; url={opened.session.url}")
        return self.write_page("redirect.html", url=opened.session.url)


class UsageCsv(DashboardHandler):
    """Usage by day as CSV."""

    async def get(self) -> None:
        account = await self.signed_in()
        if account is None:
            return self.redirect_to("/dashboard")
        period = self.chosen_period()
        report = await self.services.accounts.usage(account.id, period.start, period.end)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="convertd-{period.name}.csv"')
        return self.write(usage_csv(report.by_day))


def _last_month() -> str:
    return f"{datetime.now(UTC) - timedelta(days=29):%Y-%m-%d}"
