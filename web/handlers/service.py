"""GET /formats, /tools, /openapi.json, /healthz, /livez, /readyz, /version, and 404 for all other paths of the API."""

import re
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from web.api.errors import NotReady
from web.api.operations import JSON_FORM, Operation, Response, cacheable, json_response
from web.api.schemas import service as schemas
from web.api.values import API
from web.docs.api_reference import CachedJson, cached_json
from web.docs.catalogue import conversion
from web.http.handler import BaseHandler
from web.http.responses import wants_html, write_json

_TOOL_PATH = f"^{API}/(?:tools/)?(.*?)({JSON_FORM})?$"
_CACHE_CONTROL = "public, max-age=300"


def _is_current(handler: BaseHandler, etag: str) -> bool:
    """Whether the client's copy has this ETag. Sets status 304 and the cache headers."""
    handler.set_header("Cache-Control", _CACHE_CONTROL)
    handler.set_header("ETag", etag)
    current = handler.check_etag_header()
    if current:
        handler.set_status(304)
    return current


def _reply_cached(handler: BaseHandler, content: CachedJson) -> None:
    if not _is_current(handler, content.etag):
        handler.respond_encoded(content.encoded)


class Formats(BaseHandler):
    """The supported conversions."""

    access = "address"

    @Operation(id="formatsList", tag="Catalogue", responses=cacheable(json_response(schemas.Formats)))
    async def get(self) -> None:
        """List the supported conversions

        The list depends on the plugins of this server.
        """
        _reply_cached(self, self.services.formats)


class Conversion(BaseHandler):
    """A supported conversion."""

    access = "address"

    @Operation(
        id="conversionsGet",
        tag="Catalogue",
        responses=cacheable(json_response(schemas.Conversion)),
        codes=("unsupported_conversion",),
    )
    async def get(self, input_format: str, output_format: str) -> None:
        """Get the options of a conversion

        Format names are case-insensitive; aliases such as `jpg` are accepted.
        """
        _reply_cached(self, cached_json(conversion(self.services.registry, input_format, output_format)))


class Tools(BaseHandler):
    """The conversion tools."""

    access = "address"

    @Operation(id="toolsList", tag="Catalogue", responses=cacheable(json_response(schemas.Tools)))
    async def get(self) -> None:
        """List the conversion tools"""
        _reply_cached(self, (await self.services.documents()).tools)


class OpenApiDocument(BaseHandler):
    """The OpenAPI document."""

    access = "address"

    @Operation(
        id="openapiGet",
        tag="Catalogue",
        responses=cacheable(Response(200, "The document.", dict[str, Any], enveloped=False)),
    )
    async def get(self) -> None:
        """Get this document"""
        document = (await self.services.documents()).openapi
        if not _is_current(self, document.etag):
            write_json(self, document.encoded)


class ApiRoot(BaseHandler):
    """The path of the API, which leads to its documentation."""

    access = "address"

    async def get(self) -> None:
        if wants_html(self.request.headers.get("Accept", "")):
            self.redirect("/docs", status=303)
            return
        site = self.services.settings.base_url.removesuffix(API)
        self.respond(
            {"version": version("convertd"), "docs_url": f"{site}/docs", "openapi_url": f"{site}{API}/openapi.json"}
        )


class OpenApiRedirect(BaseHandler):
    """Where clients look for the OpenAPI document."""

    access = "address"

    async def get(self) -> None:
        self.redirect(f"{API}/openapi.json", status=308)


class Health(BaseHandler):
    """Liveness."""

    access = "open"

    @Operation(
        id="healthGet",
        tag="Service",
        responses=(Response(200, "The process responds.", schemas.Alive, enveloped=False),),
    )
    async def get(self) -> None:
        """Check that the process responds"""
        write_json(self, {"status": "ok"})


class Ready(BaseHandler):
    """Readiness."""

    access = "open"

    @Operation(
        id="readinessGet",
        tag="Service",
        responses=(Response(200, "The process is ready.", schemas.Ready, enveloped=False),),
    )
    async def get(self) -> None:
        """Check that the process can serve requests

        Failures of optional parts are listed in `reasons`, and do not make the process unready.
        """
        state = await self.services.readiness.state()
        cluster = {} if state.cluster is None else {"cluster": asdict(state.cluster)}
        if state.reasons:
            reasons = [*state.reasons, *state.degraded]
            raise NotReady("The service is not ready.", details={"reasons": reasons, **cluster})
        status = {"status": "degraded", "reasons": state.degraded} if state.degraded else {"status": "ok"}
        write_json(self, {**status, **cluster})


class Version(BaseHandler):
    """The version of the service."""

    access = "open"

    @Operation(
        id="versionGet", tag="Service", responses=(Response(200, "The version.", schemas.Release, enveloped=False),)
    )
    async def get(self) -> None:
        """Get the version of the service"""
        meta = {"request_id": self.request_id}
        write_json(self, {"name": "convertd", "version": version("convertd"), "api": "v1", "meta": meta})


class NotFoundHandler(BaseHandler):
    """All paths of the API without a resource, including the paths of tools whose program is not installed."""

    async def prepare(self) -> None:
        tool = re.sub(_TOOL_PATH, r"\1", self.request.path).replace("pdf/", "pdf-")
        lacking = self.services.registry.lacking(tool)
        if lacking is not None:
            self.absence = f"{tool} needs {lacking.name}, which is not installed here."
        await super().prepare()
