"""The conversion that a form or a JSON body asks for.

What a request may bring besides a file and options is a resolver of its own, which only requests that name it enter.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from engine.auto_format import AUTO, DEFAULT_FORMATS, FORMATS
from engine.options import OptionValues
from engine.registry import Registry
from storage.errors import NotFound as StorageNotFound
from storage.tables import presets
from web.api.errors import InvalidParameter, NotFound
from web.api.field_types import field_names
from web.api.job_fields import JobFields
from web.api.output_fields import KeptFields, TargetFields
from web.api.url_fields import ExportFields, UrlFields, UrlsFields
from web.http.handler import BaseHandler
from web.services.conversions.conversion_request import ConversionRequest, RemoteFile

_ANY_IMAGE = "image/*"
_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*(0(\.0*)?)\s*")  # The client does not accept types with it.


@dataclass(frozen=True)
class Resolver:
    """Adds to a request what its fields `names` ask for. Raises PublicError."""

    names: Iterable[str]
    resolve: Callable[[BaseHandler, ConversionRequest], Awaitable[ConversionRequest]]


async def conversion_request(handler: BaseHandler, **known: Any) -> ConversionRequest:
    """The conversion that the body of the request asks for, with the `known` values of a ConversionRequest.

    Raises PublicError.
    """
    body = handler.input
    if handler.operation is not None and handler.operation.json is not None:
        body.json_fields(handler.operation.json)
    account = handler.client()
    request = ConversionRequest(account=account, price=account.price, context=handler.context, **known)
    for resolver in RESOLVERS:
        if not body.values.keys().isdisjoint(resolver.names):
            request = await resolver.resolve(handler, request)
    found: dict[str, Any] = {"idempotency": body.idempotent_request(request.account.id)}
    if handler.preferences.respond_async:
        found["background"] = True
    if body.has_form:
        several = bool(request.remote) or (handler.operation is not None and handler.operation.takes_several)
        uploads, additional = body.uploads(several=several)
        found["uploads"] = (*uploads, *(upload for _, upload in additional))
        found["file_names"] = tuple(name for name, _ in additional)
    if not request.outputs:
        target = request.target or body.fields(KeptFields).output_format
        if target is None:
            raise InvalidParameter("output_format is missing.", reason="missing", param="output_format")
        options: OptionValues = body.options_given()
        found["target"] = target
        found["options"] = _with_formats(handler, options) if target.lower() == AUTO else options
    return replace(request, **found)


async def _add_preset(handler: BaseHandler, request: ConversionRequest) -> ConversionRequest:
    """Adds the fields of the account's preset to those of the body."""
    name = handler.input.fields(TargetFields).preset
    if name is not None:
        try:
            preset = await handler.services.database.run(presets.get, request.account.id, name)
        except StorageNotFound:
            raise NotFound(f"There is no preset {name}.", param="preset") from None
        handler.input.add_preset(json.loads(preset.fields))
    return request


async def _name_remote_files(handler: BaseHandler, request: ConversionRequest) -> ConversionRequest:
    return replace(request, remote=remote_files(handler))


def remote_files(handler: BaseHandler) -> tuple[RemoteFile, ...]:
    """The files that the form names by their URLs. These are checked but for the addresses of names.

    Raises InvalidParameter.
    """
    remote = handler.input.remote_files()
    handler.services.remote_files.check(remote)
    return remote


async def _list_outputs(handler: BaseHandler, request: ConversionRequest) -> ConversionRequest:
    """Several results instead of one: an output format beside them has no effect."""
    given = handler.input.fields(KeptFields).outputs
    if given is None:
        return request
    outputs = [
        replace(one, options=_with_formats(handler, one.options)) if one.target.lower() == AUTO else one
        for one in handler.input.outputs_given(given)
    ]
    return replace(request, outputs=tuple(outputs), options=handler.input.options_given())


async def _describe_job(handler: BaseHandler, request: ConversionRequest) -> ConversionRequest:
    """Adds what is only for a job. A URL that gets the ended job makes the request one."""
    request = replace(request, **dict(handler.input.fields(JobFields)))
    if request.webhook_url is None:
        return request
    handler.services.remote_files.check([RemoteFile(request.webhook_url, {}, "webhook_url")])
    return replace(request, background=True)


async def _export(handler: BaseHandler, request: ConversionRequest) -> ConversionRequest:
    """Names where the result is also sent."""
    fields = handler.input.fields(ExportFields)
    if fields.export_url is None:
        return request
    target = RemoteFile(fields.export_url, dict(fields.export_headers or {}), "export_url")
    handler.services.remote_files.check([target])
    return replace(request, export=target)


RESOLVERS = (
    Resolver({*field_names(UrlFields), *field_names(UrlsFields)}, _name_remote_files),
    Resolver({"preset"}, _add_preset),
    Resolver({"outputs"}, _list_outputs),
    Resolver(field_names(ExportFields), _export),
    Resolver(field_names(JobFields), _describe_job),
)
"""In the order in which they are entered: each may change what the next ones find."""


def _with_formats(handler: BaseHandler, options: OptionValues) -> OptionValues:
    """The options with the formats of which `auto` chooses, if the request does not name any.

    These are the image formats that the header Accept names, and DEFAULT_FORMATS if it names none, or `image/*`.
    """
    if FORMATS.name in options:
        return options
    accept = handler.request.headers.get("Accept", "")
    return {**options, FORMATS.name: ",".join(_accepted_formats(handler.services.registry, accept))}


def _accepted_formats(registry: Registry, accept: str) -> tuple[str, ...]:
    """The names of the image formats that `Accept` names, or DEFAULT_FORMATS."""
    entries = [[part.strip().lower() for part in entry.split(";")] for entry in accept.split(",")]
    refused = {name for name, *weights in entries if any(_ZERO_WEIGHT.fullmatch(weight) for weight in weights)}
    accepted = [name for name, *_ in entries if name not in refused]
    written = {target.media_type: target.name for _, target in reversed(registry.pairs())}
    named = [written[name] for name in accepted if name.startswith("image/") and name in written]
    if not named or _ANY_IMAGE in accepted:
        named += [name for name in DEFAULT_FORMATS if registry.formats[name].media_type not in refused]
    return tuple(dict.fromkeys(named)) or DEFAULT_FORMATS
