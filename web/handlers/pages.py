"""Pages for people. Each is one file, and asks for nothing from elsewhere."""

from __future__ import annotations

import asyncio
import html
import secrets
from collections.abc import Mapping
from pathlib import Path

from web.handler import UncountedHandler

_FOLDER = Path(__file__).parents[1] / "pages"


class PageHandler(UncountedHandler):
    """A page for people."""

    async def write_page(self, name: str, values: Mapping[str, str], *, form_action: str = "'none'") -> None:
        """Answers with the file, in which `{value}` stands for a value, and `{nonce}` where the policy names a part."""
        page = await asyncio.to_thread((_FOLDER / name).read_text, "utf-8")
        nonce = secrets.token_urlsafe(16)
        for value, text in {**values, "nonce": nonce}.items():
            page = page.replace(f"{{{value}}}", html.escape(text))
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.set_header("Content-Security-Policy", _policy(nonce, form_action))
        self.set_header("Cache-Control", "no-store")
        self.set_header("Referrer-Policy", "no-referrer")
        self.write(page)


class VerifyPage(PageHandler):
    """Where the link of a letter leads a browser. The token is in the fragment, which browsers keep to themselves."""

    async def get(self) -> None:
        await self.write_page("verify.html", {})


def _policy(nonce: str, form_action: str) -> str:
    own = f"'nonce-{nonce}'"
    return (
        f"default-src 'none'; script-src {own}; style-src {own}; connect-src 'self'; "
        f"base-uri 'none'; form-action {form_action}; frame-ancestors 'none'"
    )
