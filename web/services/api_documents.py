"""The documents that describe the API and its conversions, made from the registry."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from engine.registry import Registry
from web.services.api_reference import Endpoint, endpoints
from web.services.catalogue import DocumentedOption, documented_options, tools_catalogue

MakeOpenApi: TypeAlias = Callable[[], dict[str, Any]]


@dataclass(frozen=True)
class CachedJson:
    """A JSON document that does not change: its values, encoding and ETag."""

    data: dict[str, Any]
    encoded: bytes
    etag: str


def cached_json(data: dict[str, Any]) -> CachedJson:
    """Encodes a document and computes its ETag."""
    # Weak: responses with the same data differ in their request id.
    encoded = json.dumps(data, ensure_ascii=False).encode()
    return CachedJson(data, encoded, f'W/"{hashlib.sha256(encoded).hexdigest()[:32]}"')


@dataclass(frozen=True)
class ApiDocuments:
    """The OpenAPI document, the tools, and what the docs pages show: the endpoints and the table of options."""

    openapi: CachedJson
    tools: CachedJson
    reference: tuple[Endpoint, ...]
    options: tuple[DocumentedOption, ...]

    @classmethod
    def make(cls, registry: Registry, make_openapi: MakeOpenApi) -> "ApiDocuments":
        """Makes all documents, which takes about half a second of CPU time."""
        openapi, tools = make_openapi(), tools_catalogue(registry)
        return cls(cached_json(openapi), cached_json(tools), endpoints(openapi), documented_options(registry))
