"""GET /formats and /tools: what can be converted here."""

from __future__ import annotations

from web.handler import PublicHandler
from web.operations import Operation, cacheable, described
from web.services.catalogue import Listing
from web.shapes import service as shapes

_CACHED = "public, max-age=300"


class _Catalogue(PublicHandler):
    def list(self, listing: Listing) -> None:
        """Answers with the listing, or with 304 to a client that has it."""
        self.set_header("Cache-Control", _CACHED)
        self.set_header("ETag", listing.etag)
        if self.check_etag_header():
            self.set_status(304)
        else:
            self.reply(listing.data)


class Formats(_Catalogue):
    """The supported pairs."""

    @Operation(id="listFormats", tag="Catalogue", answers=cacheable(described(shapes.Formats)))
    async def get(self) -> None:
        """List what can be converted into what

        It is what works on this server now.
        """
        self.list(self.services.formats)


class Tools(_Catalogue):
    """The conversion tools."""

    @Operation(id="listTools", tag="Catalogue", answers=cacheable(described(shapes.Tools)))
    async def get(self) -> None:
        """List the conversion tools"""
        self.list(self.services.tools)
