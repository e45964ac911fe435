"""/register and /verify: how a client gets an API key; /account: the account, its usage, and its API keys."""

import time
from dataclasses import replace
from types import MappingProxyType

from storage.tables import usage
from web.api.fields import (
    KeyRotationFields,
    NewKeyFields,
    RegistrationFields,
    UsageQuery,
    VerificationQuery,
    parse_period,
)
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, json_response
from web.api.schemas import accounts as schemas
from web.http.handler import BaseHandler
from web.http.responses import wants_json
from web.services.accounts.accounts import Account
from web.services.accounts.key_modes import check_live
from web.services.accounts.usage_report import usage_csv

_VERIFY_PAGE = "/developers/verify"


class Register(BaseHandler):
    """Sends a verification email."""

    access = "not_cross_site"

    @Operation(
        id="accountRegister",
        tag="Registration",
        json=RegistrationFields,
        responses=(json_response(schemas.Registration),),
        codes=("not_found",),
    )
    async def post(self) -> None:
        """Request a verification email

        The response is the same whether or not the address has an account. The owner of an account receives a link to
        a replacement key. Pages of other sites cannot register their visitors.
        """
        fields = self.input.json_fields(RegistrationFields)
        await self.services.registrations.register(fields.email, fields.name, self.authorization.address, self.language)
        message = f"{schemas.REGISTERED} {self.services.registrations.credits_rule}".rstrip()
        self.respond(schemas.Registration(fields.email, message=message))


class Verify(BaseHandler):
    """Returns the API key to programs, and redirects browsers to a page with a button that fetches it.

    The button keeps mail scanners that open links from using up the token.
    """

    access = "address"
    fixed_headers = MappingProxyType({**NO_STORE, "Referrer-Policy": "no-referrer"})

    @Operation(
        id="accountVerify",
        tag="Registration",
        query=VerificationQuery,
        responses=(
            json_response(schemas.VerifiedKey),
            Response(303, "For browsers: the page that fetches the key.", headers=("Location",)),
        ),
        codes=("not_found",),
    )
    async def get(self) -> None:
        """Get the API key with the token of the verification email

        Uses up the token. A browser is redirected to a page instead, and the token stays valid.
        """
        token = self.input.query_fields(VerificationQuery).token
        if self._is_browser():
            self.redirect(f"{_VERIFY_PAGE}#token={token}", status=303)
        else:
            verified = await self.services.registrations.verify(token, self.authorization.address)
            key = verified.issued.key
            account = Account.from_storage(verified.account, key.key_id, self.services.settings)
            rule = self.services.registrations.credits_rule if verified.account.credits_remaining == 0 else ""
            self.respond(
                schemas.VerifiedKey(
                    api_key=verified.issued.text,
                    key_id=key.key_id,
                    key_prefix=key.key_prefix,
                    email=account.email,
                    name=account.name,
                    tier=account.tier.name,
                    credits_remaining=account.credits_remaining,
                    message=f"{schemas.NEW_KEY} {rule}".rstrip(),
                )
            )

    async def head(self, *_args: str) -> None:
        token = self.input.query_fields(VerificationQuery).token
        if self._is_browser():
            self.redirect(f"{_VERIFY_PAGE}#token={token}", status=303)

    def _is_browser(self) -> bool:
        accept = self.request.headers.get("Accept", "").lower()
        navigates = self.request.headers.get("Sec-Fetch-Mode", "").lower() == "navigate"
        return "application/json" not in accept and ("text/html" in accept or navigates)


class AccountResource(BaseHandler):
    """The account, its balance and its limits."""

    fixed_headers = NO_STORE

    @Operation(id="accountGet", tag="Account", responses=(json_response(schemas.Account),))
    async def get(self) -> None:
        """Get the account, its balance and its limits"""
        stored = await self.services.files.stored_bytes(self.client().id)
        account = self.client()
        tier = self.client().tier
        settings = self.services.settings
        limits = schemas.Limits(
            max_file_size=tier.max_file_size,
            max_batch_files=settings.max_batch_files,
            max_merge_files=self.services.registry.tools["pdf-merge"].inputs[-1],
            max_concurrent=tier.max_concurrent,
            file_retention_seconds=tier.file_retention_seconds,
        )
        storage = schemas.Storage(stored, tier.max_stored_bytes)
        rate_limit = schemas.RateLimit(self.authorization.status)
        self.respond(schemas.Account(account, tier.name, tier.max_file_size, storage, rate_limit, limits))


class Usage(BaseHandler):
    """Conversions and data transfer in a period."""

    fixed_headers = NO_STORE

    @Operation(
        id="usageGet",
        tag="Account",
        query=UsageQuery,
        responses=(
            replace(json_response(schemas.Usage), headers=("Vary",)),
            Response(200, "`by_day` as CSV, with `Accept: text/csv`.", media_types=("text/csv",), headers=("Vary",)),
        ),
    )
    async def get(self) -> None:
        """Get the usage in a period

        Requests that were refused with a 4xx status are not counted.
        """
        period = self.input.query_fields(UsageQuery).period or parse_period(None, int(time.time()))
        report = await self.services.database.run(usage.report, self.client().id, period.start, period.end)
        self.set_header("Vary", "Accept")
        accept = self.request.headers.get("Accept", "")
        if "text/csv" in accept.lower() and not wants_json(accept):
            self.set_header("Content-Type", "text/csv; charset=utf-8")
            self.set_header("X-Credits-Remaining", str(self.client().credits_remaining))
            self.write(usage_csv(report.by_day))
        else:
            self.respond(schemas.Usage(period.name, report))


class Keys(BaseHandler):
    """The account's API keys."""

    fixed_headers = NO_STORE

    @Operation(id="keysList", tag="Account", responses=(json_response(schemas.Keys),))
    async def get(self) -> None:
        """List the valid API keys"""
        keys = await self.services.accounts.list_keys(self.client().id)
        self.respond(schemas.Keys(keys, len(keys)))

    @Operation(id="keysCreate", tag="Account", json=NewKeyFields, responses=(json_response(schemas.IssuedKey),))
    async def post(self) -> None:
        """Create an API key"""
        account = self.client()
        fields = self.input.json_fields(NewKeyFields)
        check_live(account)
        issued = await self.services.accounts.issue_key(account.id, fields.name or account.name, fields.mode)
        self.respond(schemas.IssuedKey(issued.key, issued.text))


class KeyResource(BaseHandler):
    """An API key."""

    fixed_headers = NO_STORE

    @Operation(id="keysRevoke", tag="Account", responses=(json_response(schemas.RevokedKey),))
    async def delete(self, key_id: str) -> None:
        """Revoke an API key

        The last key cannot be revoked, only rotated.
        """
        check_live(self.client())
        await self.services.accounts.revoke_key(self.client().id, key_id)
        self.respond(schemas.RevokedKey(key_id))


class KeyRotation(BaseHandler):
    """Replaces an API key, which stays valid for a grace period."""

    fixed_headers = NO_STORE

    @Operation(id="keysRotate", tag="Account", json=KeyRotationFields, responses=(json_response(schemas.RotatedKey),))
    async def post(self, key_id: str) -> None:
        """Replace an API key"""
        grace = self.input.json_fields(KeyRotationFields).grace_period_seconds
        check_live(self.client())
        issued = await self.services.accounts.rotate_key(self.client().id, key_id, grace)
        self.respond(schemas.RotatedKey(schemas.IssuedKey(issued.key, issued.text), key_id, grace))
