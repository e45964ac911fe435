"""Accounts: registration by email, authentication by API key or session, management of API keys, and balance."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from config.pricing import DAY, EMAILS_PER_MAILBOX, FREE_CREDITS, HOUR, REGISTRATIONS_PER_ADDRESS, Plan
from config.settings import Settings
from storage.database import Database
from storage.errors import InvalidKey
from storage.rate_limits import RateLimiter
from storage.tables import api_keys, email_verification, ledger, sessions
from storage.tables.accounts import StoredAccount, mailbox
from storage.tables.api_keys import IssuedKey, Key, Mode, parse_key
from storage.tables.email_verification import Verified
from web.api.errors import EmailNotConfigured, InvalidParameter, KeyNotVerified, RateLimited, RegistrationClosed
from web.api.values import API
from web.locale.languages import LANGUAGES, Language, gettext_noop
from web.metrics.service import CreditMetrics
from web.services.accounts.changes import SIGN_IN_LINK
from web.services.accounts.email import EmailQueue, replacement_email, sign_in_email, verification_email
from web.services.accounts.plans import plan_of
from web.services.admission.fair_queue import Tenant
from web.services.admission.tenant_records import PROVING_JOBS

log = logging.getLogger("convertd.accounts")

SESSION_LIFETIME = sessions.LIFETIME  # seconds

_BEARER = re.compile(r"Bearer +(\S+) *", re.IGNORECASE)


@dataclass(frozen=True)
class Account(StoredAccount):
    """The authenticated account of a request, as of its arrival, and the id of the API key used.

    `tier` is its plan with its own limits. `client` is the network address, or the account, for which the account of
    all trial conversions is used, else empty. `key_mode` is that of the key.
    """

    tier: Plan = field(kw_only=True)
    key_id: str = field(kw_only=True)
    client: str = ""
    key_mode: Mode = "live"

    @classmethod
    def from_storage(cls, account: StoredAccount, key_id: str, settings: Settings) -> Account:
        """Combines the stored account, its plan and the id of a key."""
        return cls(**vars(account), tier=plan_of(account, settings), key_id=key_id)

    @property
    def price(self) -> int:
        """The credits that a conversion costs."""
        return 0 if self.key_mode == "test" else self.tier.price

    @cached_property
    def tenant(self) -> Tenant:
        """The tenant of the job queue: the account, or the client if it uses the account of trials.

        Tenants share no worker process.
        """
        if self.client:
            return Tenant(f"{self.id} {self.client}", self.tier.max_concurrent, is_new=True)
        is_trusted = bool(self.credits_total_purchased) or self.tier.unmetered
        is_new = not is_trusted and self.credits_used_total < PROVING_JOBS
        return Tenant(self.id, self.tier.max_concurrent, self.address, is_new)


class Accounts:
    """Authenticates requests, manages sessions and API keys, and reads the balance.

    `clock` returns Unix time in seconds.
    """

    def __init__(self, database: Database, settings: Settings, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._settings = settings
        self._clock = clock
        self._uses: dict[str, asyncio.Task[None]] = {}  # pending writes of `last_used_at`, by key id

    async def authenticate(self, authorization: str | None) -> Account:
        """Returns the account of an Authorization header, verified or not. Raises InvalidKey and DatabaseBusy."""
        bearer = _BEARER.fullmatch(authorization or "")
        if bearer is None:
            raise InvalidKey
        stored, key = await self._database.run(api_keys.authenticate, parse_key(bearer[1]))
        account = replace(Account.from_storage(stored, key.key_id, self._settings), key_mode=key.mode)
        now = self._clock()
        if api_keys.is_use_due(key, now):
            account = replace(account, last_used_at=int(now))
            self._record_use(account.id, key.key_id)
        return account

    def _record_use(self, account_id: str, key_id: str) -> None:
        """Updates `last_used_at` of the account and the key. No request waits for the write."""
        if key_id not in self._uses:
            use = asyncio.create_task(self._database.run(api_keys.record_use, account_id, key_id))
            self._uses[key_id] = use
            use.add_done_callback(partial(self._on_use_recorded, key_id))

    def _on_use_recorded(self, key_id: str, use: asyncio.Task[None]) -> None:
        del self._uses[key_id]
        if not use.cancelled() and use.exception() is not None:
            log.warning("the last use of a key could not be recorded", exc_info=use.exception())

    async def close(self) -> None:
        """Waits for pending writes."""
        while self._uses:
            await asyncio.wait(self._uses.values())

    async def sign_in(self, key: str) -> str:
        """Starts a session and returns its token. Raises InvalidKey, KeyNotVerified and DatabaseBusy.

        The session ends with `sign_out`, after SESSION_LIFETIME, or when the API key stops working.
        """
        token, account = await self._database.run(sessions.begin, parse_key(key))
        if account.verified_at is None:
            await self.sign_out(token)
            raise KeyNotVerified
        return token

    async def session_account(self, token: str) -> Account:
        """Returns the account of a session; its key is empty if an email link opened it. Raises InvalidKey."""
        stored, key_id = await self._database.run(sessions.find, token)
        return Account.from_storage(stored, key_id or "", self._settings)

    async def sign_out(self, token: str) -> None:
        """Ends a session. Does nothing for an unknown token."""
        await self._database.run(sessions.end, token)

    async def list_keys(self, account_id: str) -> tuple[Key, ...]:
        """Returns the active API keys of the account, oldest first."""
        if self._uses:  # the list shows the use by this request
            await asyncio.wait(self._uses.values())
        return await self._database.run(api_keys.list_keys, account_id)

    async def issue_key(self, account_id: str, name: str, mode: Mode = "live") -> IssuedKey:
        """Creates an API key. Raises TooManyKeys."""
        return await self._database.run(api_keys.add, account_id, name, mode)

    async def owns_key(self, account_id: str, key: str) -> bool:
        """Returns whether the text is a valid API key of the account."""
        try:
            account, _ = await self._database.run(api_keys.authenticate, parse_key(key))
        except InvalidKey:
            return False
        return account.id == account_id

    async def rotate_key(self, account_id: str, key_id: str, grace: int) -> IssuedKey:
        """Replaces an API key, which keeps working for `grace` seconds. Raises NotFound and TooManyKeys."""
        return await self._database.run(api_keys.rotate, account_id, key_id, grace)

    async def revoke_key(self, account_id: str, key_id: str) -> None:
        """Revokes an API key at once. Raises NotFound, and LastKey for the last key without an expiry."""
        await self._database.run(api_keys.revoke, account_id, key_id)

    async def balance(self, account_id: str) -> int:
        """Returns the current balance in credits."""
        return await self._database.run(ledger.balance, account_id)


ONCE_PER_MAILBOX = gettext_noop("Only the first account of a mailbox on a day gets the free credits.")


def has_domain(email: str, domains: Collection[str]) -> bool:
    """Whether the address is of one of the domains."""
    return email.rpartition("@")[2].strip().lower() in {domain.lower() for domain in domains}


class Registrations:
    """Registers clients, and signs them in, by email. Only owners of addresses learn whether these have accounts."""

    def __init__(
        self,
        database: Database,
        email_queue: EmailQueue,
        limiter: RateLimiter,
        settings: Settings,
        metrics: CreditMetrics,
    ) -> None:
        self._database = database
        self._email_queue = email_queue
        self._limiter = limiter
        self._settings = settings
        self._metrics = metrics

    @property
    def credits_rule(self) -> str:
        """A sentence for clients about the free credits of accounts of one mailbox; empty if each account gets them."""
        return ONCE_PER_MAILBOX if self._settings.mailbox_credits_once else ""

    async def register(self, email: str, name: str, address: str, language: Language) -> None:
        """Sends a verification email for a client at the network address `address` who reads the language.

        Unless registration is open, only owners of existing accounts get an email. Raises RegistrationClosed,
        EmailNotConfigured, InvalidParameter for an address of another domain, and RateLimited.
        """
        if self._settings.registration == "closed":
            raise RegistrationClosed
        domains = self._settings.registration_domains
        if domains and not has_domain(email, domains):
            message = f"Only addresses of these domains can register: {', '.join(domains)}."
            raise InvalidParameter(message, reason="domain", param="email")
        await self._check_limits(email, address)
        registration = await self._database.run(email_verification.register, email, name)
        if registration.purpose == "register" and self._settings.registration != "open":
            return
        link = f"{self._settings.base_url}/verify?token={registration.token}"
        if registration.purpose == "register":
            self._email_queue.enqueue(verification_email(registration.email, link, self.credits_rule, language))
        else:
            known = LANGUAGES.get(registration.language or "", language)
            self._email_queue.enqueue(replacement_email(registration.email, link, known))

    async def verify(self, token: str, address: str) -> Verified:
        """Exchanges the token of a verification email, once, for an API key. Raises NotFound."""
        verified = await self._database.run(
            email_verification.verify,
            token.lower(),
            free_credits=FREE_CREDITS,
            once_per_mailbox=self._settings.mailbox_credits_once,
            address=address,
        )
        if verified.purpose == "register":
            self._metrics.granted.labels("registration").inc(verified.account.credits_remaining)
        return verified

    async def request_sign_in(self, email: str, address: str, language: Language) -> None:
        """Sends a link to sign in to a client at the network address `address`, if the email address has an account.

        It is in the language of the account, by default in the client's.

        Raises EmailNotConfigured and RateLimited.
        """
        await self._check_limits(email, address)
        requested = await self._database.run(email_verification.request_sign_in, email)
        if requested is not None:
            link = f"{self._settings.base_url.removesuffix(API)}{SIGN_IN_LINK}#token={requested.token}"
            known = LANGUAGES.get(requested.language or "", language)
            self._email_queue.enqueue(sign_in_email(requested.email, link, known))

    async def sign_in(self, token: str) -> str:
        """Exchanges the token of a link, once, for the token of a session. Raises NotFound."""
        return await self._database.run(email_verification.sign_in, token.lower())

    async def _check_limits(self, email: str, address: str) -> None:
        """Counts an email to the mailbox, asked for by the network address, or none if one limit is reached.

        Raises EmailNotConfigured and RateLimited.
        """
        if not self._email_queue.enabled:
            raise EmailNotConfigured
        counters = (
            (f"registrations:mailbox:{mailbox(email)}", EMAILS_PER_MAILBOX, HOUR),
            (f"registrations:address:{address}", REGISTRATIONS_PER_ADDRESS, DAY),
        )
        for count in (self._limiter.peek, self._limiter.hit):
            for counter in counters:
                status = await count(*counter)
                if not status.allowed:
                    message = gettext_noop("Too many emails were asked for; try again later.")
                    raise RateLimited(message, retry_after=status.retry_after, reason="registrations", limit=status)
