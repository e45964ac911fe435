"""GET /formats, /tools and /openapi.json: what can be converted here, and how."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from web.api.errors import ApiError, NotFound, NotReady
from web.api.operations import Operation, Response, cacheable, described
from web.api.schemas import service as shapes
from web.http.handler import Handler, PublicHandler, UncountedHandler
from web.services.catalogue import CachedJson

_CACHED = "public, max-age=300"


class _Catalogue(PublicHandler):
    def is_known(self, etag: str) -> bool:
        """Whether the client has what this is the tag of: then it is answered so."""
        self.set_header("Cache-Control", _CACHED)
        self.set_header("ETag", etag)
        if known := self.check_etag_header():
            self.set_status(304)
        return known

    def list(self, listing: CachedJson) -> None:
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
        answers=cacheable(Response(200, "The document.", dict[str, Any], enveloped=False)),
    )
    async def get(self) -> None:
        """Fetch this document"""
        document = self.services.openapi
        if not self.is_known(document.etag):
            self.write_encoded(document.encoded)


class Health(UncountedHandler):
    """The process answers."""

    @Operation(id="healthz", tag="Service", answers=(Response(200, "It does.", shapes.Alive, enveloped=False),))
    async def get(self) -> None:
        """Ask whether the process answers"""
        self.write_json({"status": "ok"})


class Ready(UncountedHandler):
    """The process can do its work. What it can do without is told, and is no reason to send it none."""

    @Operation(id="readyz", tag="Service", answers=(Response(200, "It can.", shapes.Ready, enveloped=False),))
    async def get(self) -> None:
        """Ask whether the process can do its work

        What it can do without is told in `reasons`, and is no reason to send it none.
        """
        state = await self.services.readiness.state()
        if state.reasons:
            raise NotReady("The service is not ready.", details={"reasons": [*state.reasons, *state.degraded]})
        self.write_json({"status": "degraded", "reasons": state.degraded} if state.degraded else {"status": "ok"})


class Version(UncountedHandler):
    """What runs here."""

    @Operation(id="version", tag="Service", answers=(Response(200, "The version.", shapes.Release, enveloped=False),))
    async def get(self) -> None:
        """Ask what runs here"""
        meta = {"request_id": self.request_id}
        self.write_json({"name": "convertd", "version": version("convertd"), "api": "v1", "meta": meta})


class NotFoundHandler(Handler):
    """Every path that is no resource."""

    def verbs(self) -> tuple[str, ...]:
        return ()

    def misrouted(self) -> ApiError:
        return NotFound("There is nothing at this path.")
