"""The dashboard: an account for its owner to look at, known by a session. Forms alone change it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from config.pricing import CURRENCY, PACKS
from storage.api_keys import IssuedKey
from storage.errors import InvalidKey, StorageError
from web.api.errors import ApiError
from web.api.fields import NAME, PACK
from web.api.times import period, timestamp
from web.handlers.pages import FormPage
from web.services import usage_report
from web.services.accounts import SESSION_LIFETIME, Account
from web.services.checkout import DEFAULT_LANGUAGE
from web.services.serializers import usage_csv

_COOKIE = "convertd_session"
_GRACE = 86_400  # seconds that a replaced key works on


class SessionPage(FormPage):
    """A page of the account whose session the browser shows."""

    async def member(self) -> Account | None:
        """Whoever is signed in."""
        token = self.get_cookie(_COOKIE)
        if token is None:
            return None
        try:
            return await self.services.accounts.session_account(token)
        except InvalidKey:
            return None

    def leave(self, place: str = "/dashboard") -> None:
        """Sends the browser to a page of ours."""
        self.set_status(303)
        self.set_header("Location", place)

    async def write_dashboard(self, account: Account, issued: IssuedKey | None = None, **values: Any) -> None:
        """Answers with the account's dashboard."""
        chosen = period(self.get_query_argument("period", None) or _month_ago(), int(time.time()))
        report = await self.services.accounts.usage(account.id, chosen.start, chosen.end)
        requests = await self.services.request_log.latest(account.id)
        self.write_page(
            "dashboard.html",
            **{"error": None, "purchase": None, **values},
            account=account,
            issued=issued,
            period=chosen,
            report=report,
            days=usage_report.daily_chart(report.by_day, chosen.start, chosen.end),
            pairs=usage_report.pair_bars(report.by_conversion),
            charts=usage_report,
            credits_per_day=usage_report.credits_per_day(account, report, chosen),
            describe_days=usage_report.describe_days,
            months=usage_report.recent_months(account),
            keys=await self.services.accounts.list_keys(account.id),
            requests=requests,
            errors=usage_report.error_summary(requests),
            packs=tuple(PACKS.values()),
            currency=CURRENCY,
            timestamp=timestamp,
            format_size=usage_report.format_size,
        )


class Dashboard(SessionPage):
    """Balance, usage, errors, requests and keys; or the way in."""

    async def get(self) -> None:
        account = await self.member()
        if account is not None:
            await self.write_dashboard(account, purchase=self.get_query_argument("purchase", None))
        elif self.request.headers.get("Sec-Fetch-Site") == "cross-site":
            # Browsers keep the cookie back when another site sends them here, such as a checkout. This page, too, can.
            self.set_header("Refresh", "0")
            self.write_page("redirect.html", place=self.request.uri)
        else:
            self.write_page("sign_in.html", error=None)


class Session(SessionPage):
    """Signs in with a key, and out."""

    async def post(self, way: str) -> None:
        if way == "sign-out":
            await self.services.accounts.sign_out(self.get_cookie(_COOKIE, ""))
            self.clear_cookie(_COOKIE, path="/dashboard")
            return self.leave("/")
        try:
            token = await self.services.accounts.sign_in(self.entered().get("key", "").strip())
        except InvalidKey as error:
            await self._count_failure()
            return self.write_refusal(error, "sign_in.html")
        except ApiError as error:
            return self.write_refusal(error, "sign_in.html")
        secure = self.services.settings.base_url.startswith("https://")
        self.set_cookie(
            _COOKIE, token, path="/dashboard", max_age=SESSION_LIFETIME, httponly=True, samesite="Strict", secure=secure
        )
        return self.leave()


class NewKey(SessionPage):
    """Makes a key, and shows it once."""

    async def post(self) -> None:
        account = await self.member()
        if account is None:
            return self.leave()
        try:
            called = NAME.of_text(self.entered().get("name") or account.name)
        except ApiError as error:
            self.mark(error)
            return await self.write_dashboard(account, error=error)
        issued = await self.services.accounts.issue_key(account.id, called)
        return await self.write_dashboard(account, issued)


class KeyChange(SessionPage):
    """Replaces a key, or ends it."""

    async def post(self, key_id: str, change: str) -> None:
        account = await self.member()
        if account is None:
            return self.leave()
        issued, accounts = None, self.services.accounts
        try:
            if change == "rotate":
                issued = await accounts.rotate_key(account.id, key_id, _GRACE)
            else:
                await accounts.revoke_key(account.id, key_id)
        except StorageError as error:
            self.mark(error)
            return await self.write_dashboard(account, error=error)
        return await self.write_dashboard(account, issued) if issued else self.leave("/dashboard#keys")


class Buy(SessionPage):
    """Opens a checkout for a pack, and leads there."""

    async def post(self) -> None:
        account = await self.member()
        if account is None:
            return self.leave()
        try:
            wanted = PACK.of_text(self.entered().get("pack"))
            opened = await self.services.payments.checkout.purchase(account, wanted, DEFAULT_LANGUAGE)
        except ApiError as error:
            self.mark(error)
            return await self.write_dashboard(account, error=error)
        # No redirect: the policy lets forms lead to this server only.
        self.set_header("Refresh", f"0; url={opened.session.url}")
        return self.write_page("redirect.html", place=opened.session.url)


class UsageTable(SessionPage):
    """Usage by day, for a spreadsheet."""

    async def get(self) -> None:
        account = await self.member()
        if account is None:
            return self.leave()
        chosen = period(self.get_query_argument("period", None) or _month_ago(), int(time.time()))
        report = await self.services.accounts.usage(account.id, chosen.start, chosen.end)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="convertd-{chosen.name}.csv"')
        return self.write(usage_csv(report.by_day))


def _month_ago() -> str:
    return f"{datetime.now(UTC) - timedelta(days=29):%Y-%m-%d}"
