"""GET /formats and /tools: what can be converted here."""

from __future__ import annotations

from web.handler import PublicHandler
from web.services.catalogue import Listing


class _Catalogue(PublicHandler):
    def list(self, listing: Listing) -> None:
        """Answers with the listing, or with 304 to a client that has it."""
        self.set_header("Cache-Control", "public, max-age=300")
        self.set_header("ETag", listing.etag)
        if self.check_etag_header():
            self.set_status(304)
        else:
            self.reply(listing.data)


class Formats(_Catalogue):
    """The supported pairs."""

    async def get(self) -> None:
        self.list(self.services.formats)


class Tools(_Catalogue):
    """The conversion tools."""

    async def get(self) -> None:
        self.list(self.services.tools)
