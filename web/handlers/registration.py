"""POST /register and GET /verify: how one comes by a key."""

from __future__ import annotations

import re

from storage.registration import Verified
from web.bodies import PublicJsonHandler
from web.errors import InvalidParameter
from web.fields import email, name
from web.handler import PublicHandler
from web.services.accounts import known

_PAGE = "/developers/verify"


class Register(PublicJsonHandler):
    """Asks for a letter with a link. The answer is the same whether or not the address has an account."""

    async def post(self) -> None:
        body = self.body()
        address, application = email(body.get("email")), name(body.get("name"))
        await self.services.registrations.register(address, application, self._address)
        message = "Open the link in the letter within 24 hours to receive your API key."
        self.reply({"email": address, "verification_sent": True, "message": message})


class Verify(PublicHandler):
    """Gives the key to a program. A browser is sent to a page, whose button is the program.

    So what looks at the links of letters, before their readers do, does not use them up.
    """

    def set_default_headers(self) -> None:
        super().set_default_headers()
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")

    async def get(self) -> None:
        token = self._token()
        if self._is_browser():
            self._send_to_page(token)
        else:
            self.reply(_shown_once(await self.services.registrations.verify(token)))

    async def head(self, *_args: str) -> None:
        token = self._token()
        if self._is_browser():
            self._send_to_page(token)

    def _send_to_page(self, token: str) -> None:
        self.set_status(303)
        self.set_header("Location", f"{_PAGE}#token={token}")

    def _token(self) -> str:
        values = self.request.query_arguments.get("token")
        if not values:
            raise InvalidParameter("token is missing.", reason="missing", param="token")
        if len(values) > 1 or not re.fullmatch(rb"[0-9A-Fa-f]{64}", values[0]):
            raise InvalidParameter("token must be 64 hexadecimal digits.", reason="malformed", param="token")
        return values[0].decode()

    def _is_browser(self) -> bool:
        accept = self.request.headers.get("Accept", "").lower()
        navigates = self.request.headers.get("Sec-Fetch-Mode", "").lower() == "navigate"
        return "application/json" not in accept and ("text/html" in accept or navigates)


def _shown_once(verified: Verified) -> dict[str, object]:
    account = known(verified.account, verified.issued.key)
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
