"""The dashboard of the signed-in account: balance, usage, requests, API keys and purchases, with forms."""

import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from config.errors import PublicError
from config.pricing import MIB, TEST_CONVERSIONS
from storage.tables import accounts, personal_data, purchases, usage
from storage.tables.api_keys import IssuedKey
from storage.tables.purchases import Purchase
from web.api.errors import InvalidParameter, NotFound
from web.api.field_types import validate
from web.api.fields import NewKeyFields, Period, PurchaseFields, parse_period
from web.api.values import API
from web.services.accounts import changes, usage_report
from web.services.accounts.accounts import Account
from web.services.accounts.usage_report import usage_csv
from web.services.payments.checkout import format_amount, format_tax, payment_status
from web.site.pages import SIGN_IN_PATH, PageHandler

_NEW_KEY_COOKIE = "convertd_new_key"  # the text of a new API key, from its creation to the page that shows it
_NEW_KEY_SECONDS = 60
_RELOAD_SECONDS = 5  # while a payment is being confirmed
_SHOWN_REQUESTS = 25
_GRACE_PERIOD = 86_400  # seconds that a replaced key stays valid


class AccountPage(PageHandler, ABC):
    """A page about the account that is signed in, or the form to sign in."""

    access = "form"

    async def get(self) -> None:
        account = await self.authorization.find_session()
        await (self.show_signed_out() if account is None else self.show(account))

    @abstractmethod
    async def show(self, account: Account) -> None:
        """Responds with the page."""

    async def show_signed_out(self) -> None:
        """Responds with the form."""
        self.write_sign_in_page()

    def take_cookie(self, name: str) -> str | None:
        """Returns the value of a private cookie, once."""
        value = self.get_cookie(name)
        if value is not None:
            self.clear_cookie(name, path=self.base_path + SIGN_IN_PATH)
        return value


class Dashboard(AccountPage):
    """The first page."""

    async def show_signed_out(self) -> None:
        if self.request.headers.get("Sec-Fetch-Site") == "cross-site":
            # Browsers do not send the cookie on navigation from another site, such as the checkout. A reload does.
            self.set_header("Refresh", "0")
            self.write_page("redirect.html", url=f"{self.base_path}{self.request.uri}")
        else:
            self.write_sign_in_page()

    async def show(self, account: Account) -> None:
        purchase = await self._completed_purchase(account)
        if purchase is not None and purchase.state == "open":  # the provider confirms the payment within seconds
            self.set_header("Refresh", str(_RELOAD_SECONDS))
        key = self.take_cookie(_NEW_KEY_COOKIE)
        issued = key if key is not None and await self.services.accounts.owns_key(account.id, key) else None
        await _write_dashboard(self, account, purchase=purchase, issued=issued)

    async def _completed_purchase(self, account: Account) -> Purchase | None:
        """The purchase whose checkout the buyer returns from, unless it was cancelled."""
        purchase_id = self.get_query_argument("purchase", None)
        if purchase_id is None or self.get_query_argument("cancelled", None) is not None:
            return None
        return await self.services.database.run(purchases.find_of_account, account.id, purchase_id)


class NewKey(PageHandler):
    """Creates an API key, and shows it once."""

    access = "session"

    async def post(self) -> None:
        account = session_account(self)
        async with shown_errors(self, account, _write_dashboard):
            form = self.input.web_form()
            given = {"name": form.get("name") or account.name, "mode": form.get("mode") or "live"}
            fields = validate(NewKeyFields, given)
            issued = await self.services.accounts.issue_key(account.id, fields.name or account.name, fields.mode)
            _redirect_to_new_key(self, issued)


class KeyChange(PageHandler):
    """Replaces or revokes an API key."""

    access = "session"

    async def post(self, key_id: str, change: str) -> None:
        account, accounts = session_account(self), self.services.accounts
        async with shown_errors(self, account, _write_dashboard):
            if change == "rotate":
                _redirect_to_new_key(self, await accounts.rotate_key(account.id, key_id, _GRACE_PERIOD))
            else:
                await accounts.revoke_key(account.id, key_id)
                self.redirect(f"{SIGN_IN_PATH}#keys", status=303)


class BuyCredits(PageHandler):
    """Opens a checkout for a pack of credits, and redirects to it."""

    access = "session"

    async def post(self) -> None:
        account = session_account(self)
        async with shown_errors(self, account, _write_dashboard):
            pack = validate(PurchaseFields, self.input.web_form()).pack
            opened = await self.services.payments.checkout.purchase(account, pack, self.language.code)
            # Not a 303: the Content-Security-Policy allows forms to lead to this server only.
            self.set_header("Refresh", f"0; url={opened.session.checkout_url}")
            self.write_page("redirect.html", url=opened.session.checkout_url)


class Receipt(PageHandler):
    """A paid purchase, to print."""

    access = "session"

    async def get(self, purchase_id: str) -> None:
        account = session_account(self)
        purchase = await self.services.database.run(purchases.find_of_account, account.id, purchase_id)
        if purchase is None or purchase.paid_at is None:
            raise NotFound("No such receipt.")
        return self.write_page(
            "receipt.html",
            account=account,
            purchase=purchase,
            paid_at=self.language.format_time(purchase.paid_at, seconds=True),
            amount=format_amount(purchase, self.language),
            tax=format_tax(purchase, self.language),
            status=self.locale.translate(payment_status(purchase)),
            service=self.services.settings.base_url.removesuffix(API),
        )


class UsageCsv(PageHandler):
    """Usage by day as CSV."""

    access = "session"

    async def get(self) -> None:
        account, period = session_account(self), _chosen_period(self)
        report = await self.services.database.run(usage.report, account.id, period.start, period.end)
        self.set_header("Content-Type", "text/csv; charset=utf-8")
        self.set_header("Content-Disposition", f'attachment; filename="convertd-{period.name}.csv"')
        return self.write(usage_csv(report.by_day))


class PersonalData(PageHandler):
    """Everything that is kept about the account, as JSON."""

    access = "session"

    async def get(self) -> None:
        data = await self.services.database.run(personal_data.export, session_account(self).id)
        self.set_header("Content-Type", "application/json")
        self.set_header("Content-Disposition", 'attachment; filename="convertd-data.json"')
        self.write(json.dumps(data, indent=1, ensure_ascii=False))


class DeleteAccount(PageHandler):
    """Deletes the account with its files, if its address is entered."""

    access = "session"

    async def post(self) -> None:
        account, database = session_account(self), self.services.database
        async with shown_errors(self, account, _write_dashboard):
            if accounts.email_key(self.input.web_form().get("email", "")) != accounts.email_key(account.email):
                raise InvalidParameter("Enter the email address of the account to delete it.", param="email")
            stored = await database.run(accounts.get, account.id)
            await self.services.files.discard(await database.run(changes.delete, account.id, stored))
            self.redirect("/", status=303)


async def _write_dashboard(page: PageHandler, account: Account, **values: Any) -> None:
    """Responds with the dashboard."""
    period, database = _chosen_period(page), page.services.database
    report = await database.run(usage.report, account.id, period.start, period.end)
    requests = await page.services.request_log.latest(account.id)
    page.write_page(
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
        keys=await page.services.accounts.list_keys(account.id),
        requests=requests[:_SHOWN_REQUESTS],
        errors=usage_report.error_summary(requests),
        shown_requests=_SHOWN_REQUESTS,
        request_facts=usage_report.request_facts,
        packs=page.services.settings.packs_on_sale,
        describe_price=usage_report.describe_price,
        max_mib=page.services.settings.all_plans["paid"].max_file_size // MIB,
        test_conversions=TEST_CONVERSIONS,
        payments=await database.run(purchases.list_payments, account.id),
        format_amount=format_amount,
        payment_status=payment_status,
    )


@asynccontextmanager
async def shown_errors(
    page: PageHandler, account: object, write: Callable[..., Awaitable[None]]
) -> AsyncIterator[None]:
    """Responds with the page that `write` makes, which shows the error, and with its status, if a form is refused."""
    try:
        yield
    except PublicError as error:
        page.set_error(error)
        await write(page, account, error=error)


def _redirect_to_new_key(page: PageHandler, issued: IssuedKey) -> None:
    """Redirects to the dashboard, which shows the key once: a reload of it creates no other key."""
    # In a cookie, because any server can receive the next request, and URLs are logged.
    page.set_private_cookie(_NEW_KEY_COOKIE, issued.text, _NEW_KEY_SECONDS)
    page.redirect(SIGN_IN_PATH, status=303)


def session_account(page: PageHandler) -> Account:
    """The account that is signed in, on pages that need a session."""
    assert page.authorization.session is not None
    return page.authorization.session


def _chosen_period(page: PageHandler) -> Period:
    """The period of the query, or the last 30 days. Raises InvalidParameter."""
    last_month = f"{datetime.now(UTC) - timedelta(days=29):%Y-%m-%d}"
    return parse_period(page.get_query_argument("period", None) or last_month, int(time.time()))
