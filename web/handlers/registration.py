"""POST /register and GET /verify: how one comes by a key."""

from __future__ import annotations

from types import MappingProxyType

from storage.email_verification import Verified
from web.api.fields import EMAIL, NAME, TOKEN
from web.api.headers import NO_STORE
from web.api.operations import Operation, Response, described
from web.api.schemas import accounts as shapes
from web.http.bodies import PublicJsonHandler
from web.http.handler import PublicHandler
from web.services.accounts import Account

_PAGE = "/developers/verify"


class Register(PublicJsonHandler):
    """Asks for a letter with a link. The answer is the same whether or not the address has an account."""

    @Operation(id="register", tag="Registration", json=(EMAIL, NAME), answers=(described(shapes.Registration),))
    async def post(self) -> None:
        """Ask for a letter with a link

        The answer is the same whether or not the address has an account; that of an account is sent a link to a
        replacement of its key.
        """
        values = self.given()
        address, application = values[EMAIL], values[NAME]
        await self.services.registrations.register(address, application, self._address)
        message = "Open the link in the letter within 24 hours to receive your API key."
        self.reply({"email": address, "verification_sent": True, "message": message})


class Verify(PublicHandler):
    """Gives the key to a program. A browser is sent to a page, whose button is the program.

    So what looks at the links of letters, before their readers do, does not use them up.
    """

    always = MappingProxyType({**NO_STORE, "Referrer-Policy": "no-referrer"})

    @Operation(
        id="verify",
        tag="Registration",
        query=(TOKEN,),
        answers=(
            described(shapes.VerifiedKey),
            Response(303, "To browsers: the page whose button fetches the key.", headers=("Location",)),
        ),
        codes=("not_found",),
    )
    async def get(self) -> None:
        """Fetch the key, for the token of the letter

        This uses the token up. A browser is sent to a page instead, and the token stays good.
        """
        token = self.given()[TOKEN]
        if self._is_browser():
            self._send_to_page(token)
        else:
            self.reply(_shown_once(await self.services.registrations.verify(token)))

    async def head(self, *_args: str) -> None:
        token = self.given()[TOKEN]
        if self._is_browser():
            self._send_to_page(token)

    def _send_to_page(self, token: str) -> None:
        self.set_status(303)
        self.set_header("Location", f"{_PAGE}#token={token}")

    def _is_browser(self) -> bool:
        accept = self.request.headers.get("Accept", "").lower()
        navigates = self.request.headers.get("Sec-Fetch-Mode", "").lower() == "navigate"
        return "application/json" not in accept and ("text/html" in accept or navigates)


def _shown_once(verified: Verified) -> shapes.VerifiedKey:
    account = Account.from_storage(verified.account, verified.issued.key)
    return {
        "api_key": verified.issued.text,
        "key_id": verified.issued.key.id,
        "key_prefix": verified.issued.key.prefix,
        "email": account.email,
        "name": account.name,
        "tier": account.tier.name,
        "credits_remaining": account.credits_remaining,
        "message": "Keep the key in a safe place: it is not shown again.",
    }
