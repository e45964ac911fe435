"""GET /formats, /tools and /openapi.json: what can be converted here, and how."""

from __future__ import annotations

from typing import Any

from web.handler import PublicHandler
from web.operations import Answer, Operation, cacheable, described
from web.services.catalogue import Listing
from web.shapes import service as shapes

_CACHED = "public, max-age=300"


class _Catalogue(PublicHandler):
    def is_known(self, etag: str) -> bool:
        """Whether the client has what this is the tag of: then it is answered so."""
        self.set_header("Cache-Control", _CACHED)
        self.set_header("ETag", etag)
        if known := self.check_etag_header():
            self.set_status(304)
        return known

    def list(self, listing: Listing) -> None:
        """Answers with the listing, unless the client has it."""
        if not self.is_known(listing.etag):
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


class ApiDocument(_Catalogue):
    """The API's document."""

    @Operation(
        id="getOpenapi",
        tag="Catalogue",
        answers=cacheable(Answer(200, "The document.", dict[str, Any], enveloped=False)),
    )
    async def get(self) -> None:
        """Fetch this document"""
        document = self.services.openapi
        if not self.is_known(document.etag):
            self.write_encoded(document.encoded)
