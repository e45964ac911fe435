"""The document: paths, operations, and what they refer to."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, TypeAlias

from engine.registry import Registry
from web.handler import Handler
from web.openapi import headers, requests, texts
from web.openapi.responses import Responses, is_public
from web.openapi.schemas import Schemas
from web.operations import Operation, operation_of
from web.services.paths import API

Route: TypeAlias = tuple[str, type[Handler]]
"""A pattern of paths, and what answers there."""

_VERBS = ("GET", "POST", "PUT", "PATCH", "DELETE")


@dataclass(frozen=True)
class _Verb:
    """A verb of a path, whose variables have these names."""

    name: str
    path: str
    path_names: tuple[str, ...]
    handler: type[Handler]
    operation: Operation


def document(routes: Sequence[Route], registry: Registry, base_url: str) -> dict[str, Any]:
    """The document of these routes, for clients that reach them at `base_url`."""
    verbs = [*_verbs(routes)]
    schemas = Schemas(answer.shape for verb in verbs for answer in verb.operation.answers if answer.shape)
    responses = Responses(schemas, (plan.target.media_type for plan in registry.catalogue()))
    paths: dict[str, Any] = {}
    for verb in verbs:
        outside = {} if verb.path.startswith(API) else {"servers": [{"url": base_url.removesuffix(API)}]}
        item = paths.setdefault(verb.path.removeprefix(API), outside)
        item[verb.name.lower()] = _described(verb, responses)
    return {
        "openapi": "3.1.1",
        "info": {
            "title": "convertd",
            "version": version("convertd"),
            "summary": texts.SUMMARY,
            "description": texts.DESCRIPTION,
            "license": {"name": "AGPL-3.0-or-later", "identifier": "AGPL-3.0-or-later"},
        },
        "servers": [{"url": base_url}],
        "security": [{"apiKey": []}],
        "tags": [{"name": name, "description": description} for name, description in texts.TAGS.items()],
        "paths": paths,
        "components": {
            "securitySchemes": {"apiKey": {"type": "http", "scheme": "bearer", "description": texts.SECURITY}},
            "headers": headers.components(),
            "responses": dict(sorted(responses.components.items())),
            "schemas": dict(sorted(schemas.components.items())),
        },
    }


def _verbs(routes: Sequence[Route]) -> Iterator[_Verb]:
    """All verbs that are declared as operations."""
    for pattern, handler in routes:
        for name in _VERBS:
            operation = operation_of(handler, name)
            if operation is not None:
                # The variables of a path are called as the verb's arguments are.
                _, *variables = inspect.signature(getattr(handler, name.lower())).parameters
                path = re.sub(r"\([^)]*\)", "{}", pattern).format(*(f"{{{variable}}}" for variable in variables))
                yield _Verb(name, path, tuple(variables), handler, operation)


def _described(verb: _Verb, responses: Responses) -> dict[str, Any]:
    declared = verb.operation
    summary, _, description = (inspect.getdoc(getattr(verb.handler, verb.name.lower())) or "").partition("\n\n")
    parameters, body = requests.parameters(declared, verb.path_names), requests.body(declared)
    return {
        "operationId": declared.id,
        "tags": [declared.tag],
        "summary": summary,
        **({"description": " ".join(description.split("\n"))} if description else {}),
        **({"security": []} if is_public(verb.handler) else {}),
        **({"parameters": parameters} if parameters else {}),
        **({"requestBody": body} if body else {}),
        "responses": responses.of(verb.handler, declared, verb.path_names),
    }
