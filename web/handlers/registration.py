"""POST /register and GET /verify: how a client gets an API key."""

from __future__ import annotations

from types import MappingProxyType

from storage.tables.email_verification import Verified
from web.api.fields import RegistrationFields, VerificationQuery
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, json_response
from web.api.schemas.accounts import Registration, VerifiedKey
from web.http.authorization import cross_site, is_same_origin
from web.http.handler import BaseHandler
from web.services.accounts import Account

_VERIFY_PAGE = "/developers/verify"


class Register(BaseHandler):
    """Sends a verification email."""

    access = "address"

    @Operation(id="register", tag="Registration", json=RegistrationFields, responses=(json_response(Registration),))
    async def post(self) -> None:
        """Request a verification email

        The response is the same whether or not the address has an account. The owner of an account receives a link to
        a replacement key. Pages of other sites cannot register their visitors.
        """
        if is_same_origin(self.request, self.services.settings.base_url) is False:
            raise cross_site()
        fields = self.json_fields(RegistrationFields)
        await self.services.registrations.register(fields.email, fields.name, self.address)
        message = "Open the link in the email within 24 hours to get your API key."
        self.respond({"email": fields.email, "verification_sent": True, "message": message})


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
        token = self.query_fields(VerificationQuery).token
        if self._is_browser():
            self.redirect_to(f"{_VERIFY_PAGE}#token={token}")
        else:
            self.respond(_verified_key(await self.services.registrations.verify(token)))

    async def head(self, *_args: str) -> None:
        token = self.query_fields(VerificationQuery).token
        if self._is_browser():
            self.redirect_to(f"{_VERIFY_PAGE}#token={token}")

    def _is_browser(self) -> bool:
        accept = self.request.headers.get("Accept", "").lower()
        navigates = self.request.headers.get("Sec-Fetch-Mode", "").lower() == "navigate"
        return "application/json" not in accept and ("text/html" in accept or navigates)


def _verified_key(verified: Verified) -> VerifiedKey:
    account = Account.from_storage(verified.account, verified.issued.key)
    return {
        "api_key": verified.issued.text,
        "key_id": verified.issued.key.id,
        "key_prefix": verified.issued.key.prefix,
        "email": account.email,
        "name": account.name,
        "tier": account.tier.name,
        "credits_remaining": account.credits_remaining,
        "message": "Store this API key safely. It is not shown again.",
    }
