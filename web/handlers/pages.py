"""Pages for people. Each is one file, and asks for nothing from elsewhere."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path

from web.handler import UncountedHandler

_FOLDER = Path(__file__).parents[1] / "pages"
_NONCE = "{nonce}"  # in a page, where the policy has to name its script and its style


class VerifyPage(UncountedHandler):
    """Where the link of a letter leads a browser. The token is in the fragment, which browsers keep to themselves."""

    async def get(self) -> None:
        page = await asyncio.to_thread((_FOLDER / "verify.html").read_text, "utf-8")
        nonce = secrets.token_urlsafe(16)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", _policy(nonce))
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.write(page.replace(_NONCE, nonce))


def _policy(nonce: str) -> str:
    own = f"'nonce-{nonce}'"
    return (
        f"default-src 'none'; script-src {own}; style-src {own}; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
