"""POST /register and GET /verify: how a client gets an API key."""

from __future__ import annotations

from types import MappingProxyType

from web.api.fields import RegistrationFields, VerificationQuery
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, json_response
from web.api.schemas.accounts import Registration, VerifiedKey
from web.http.handler import BaseHandler
from web.services.accounts import Account

_VERIFY_PAGE = "/developers/verify"


class Register(BaseHandler):
    """Sends a verification email."""

    access = "not_cross_site"

    @Operation(id="register", tag="Registration", json=RegistrationFields, responses=(json_response(Registration),))
    async def post(self) -> None:
        """Request a verification email

        The response is the same whether or not the address has an account. The owner of an account receives a link to
        a replacement key. Pages of other sites cannot register their visitors.
        """
        fields = self.input.json_fields(RegistrationFields)
        await self.services.registrations.register(fields.email, fields.name, self.authorization.address)
        self.respond(Registration(fields.email))


class Verify(BaseHandler):
    """Returns the API key to programs, and redirects browsers to a page with a button that fetches it.

    The button keeps mail scanners that open links from using up the token.
    """

    access = "address"
    fixed_headers = MappingProxyType({**NO_STORE, "Referrer-Policy": "no-referrer"})

    @Operation(
        id="verify",
        tag="Registration",
        query=VerificationQuery,
        responses=(
            json_response(VerifiedKey),
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
            verified = await self.services.registrations.verify(token)
            account, key = Account.from_storage(verified.account, verified.issued.key), verified.issued.key
            self.respond(
                VerifiedKey(
                    api_key=verified.issued.text,
                    key_id=key.key_id,
                    key_prefix=key.key_prefix,
                    email=account.email,
                    name=account.name,
                    tier=account.tier.name,
                    credits_remaining=account.credits_remaining,
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
