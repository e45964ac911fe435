"""The input of a request: the body as it arrives, and the validated fields of query, headers and body."""

import asyncio
import codecs
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, NoReturn, Protocol
from urllib.parse import parse_qsl

from tornado.httputil import HTTPServerRequest

from engine.options import Option, OptionValue, validate_options
from web.api.errors import BodyTooLarge, InvalidParameter, malformed
from web.api.field_types import Model, check_known, field_names, validate
from web.api.fields import IdempotencyHeader
from web.api.headers import parse_header
from web.api.operations import JSON_FORM, FileField, Operation
from web.api.output_fields import KeptFields
from web.http.connections import Connection
from web.http.multipart import Form, MultipartBody, no_file
from web.services.accounts.accounts import Account
from web.services.container import Services
from web.services.conversions.conversion_plan import read_outputs
from web.services.conversions.conversion_request import OutputRequest, RemoteFile, Upload
from web.services.conversions.idempotency import IdempotentRequest

_PLAIN_FORMS = (b"application/x-www-form-urlencoded", b"application/json")
_MULTIPART = b"multipart/form-data"
_MAX_FORM_FIELDS = 50
_MAX_DEPTH = 32
_CHARSETS = ("utf-8", "utf8", "us-ascii")
_DRAIN_BYTES = 32 << 20
_DRAIN_SECONDS = 10


class Body(Protocol):
    """Receives the body of a request."""

    async def write(self, chunk: bytes) -> None:
        """Receives the next bytes. Raises ApiError."""

    def close(self) -> None:
        """Releases memory and files. The request has ended."""


class MemoryBody:
    """A body of at most `limit` bytes in memory. Raises BodyTooLarge if its expected `length` is larger."""

    def __init__(self, limit: int, length: int = 0) -> None:
        if length > limit:
            raise BodyTooLarge(limit)
        self._limit = limit
        self._content = bytearray()

    async def write(self, chunk: bytes) -> None:
        self._content += chunk
        if len(self._content) > self._limit:
            raise BodyTooLarge(self._limit)

    def close(self) -> None:
        self._content.clear()

    @property
    def content(self) -> bytes:
        return bytes(self._content)


class PlainForm(MemoryBody):
    """A form without files, because it has their URLs: URL-encoded, or a JSON object.

    Its fields are `names`, and not the `files`. `limit` and `length` are as for MemoryBody.
    """

    def __init__(
        self, content_type: str, names: Collection[str], files: Sequence[str], limit: int, length: int = 0
    ) -> None:
        super().__init__(limit, length)
        self._files = files
        self._content_type = content_type
        self._names = names

    @cached_property
    def form(self) -> Form:
        """The complete form, whose values that are no strings are the text of their JSON."""
        if self.content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{"):
            pairs = [
                (name, _as_text(value))
                for name, value in _read_json(self.content, self._content_type).items()
                if value is not None
            ]
        else:
            pairs = _read_pairs(self.content)
        if sent := [name for name, _ in pairs if name in self._files]:
            raise no_file(sent[0], "has text")
        check_known((name for name, _ in pairs), self._names)
        texts = dict(pairs)
        if len(texts) < len(pairs):
            raise malformed("A field was sent twice.", reason="duplicate")
        return Form((), texts)


class DiscardedBody:
    """The rest of the body of a refused request. Calls `abort` after 32 MiB or 10 seconds.

    If the connection were closed while the client is sending, the client might not receive the response.
    """

    def __init__(self, abort: Callable[[], object]) -> None:
        self._abort = abort
        self._remaining = _DRAIN_BYTES
        self._timer = asyncio.get_running_loop().call_later(_DRAIN_SECONDS, abort)

    async def write(self, chunk: bytes) -> None:
        self._remaining -= len(chunk)
        if self._remaining < 0:
            self._abort()

    def close(self) -> None:
        self._timer.cancel()


class RequestInput:
    """The fields of a request. Its methods raise InvalidParameter.

    `body` receives the body, which `has_form` or not; `options` are the options that it may have, by name.
    """

    def __init__(self, request: HTTPServerRequest, operation: Operation | None) -> None:
        self.body: Body = MemoryBody(0)
        self.options: Mapping[str, Option] = operation.options if operation else {}
        self._request = request
        self._form_fields = operation.form if operation else None
        self._additional = operation.additional_files if operation else ()
        self._text_names = operation.text_names if operation else frozenset()
        self.has_form = self._form_fields is not None
        self._has_json = operation is not None and operation.json is not None
        self._given: dict[str, OptionValue] = {}

    def expect_body(self, max_size: int, account: Account | None, services: Services, connection: Connection) -> None:
        """Prepares to receive the body: a form if the operation has one, else at most `max_size` bytes.

        Raises BodyTooLarge and FileTooLarge, and InvalidParameter for another content type.
        """
        sent_length = self._request.headers.get("Content-Length", "")
        length = int(sent_length) if re.fullmatch(r"[0-9]{1,4000}", sent_length) else 0
        form = self._form_fields
        if form is None and not self._has_json:
            self.body = MemoryBody(max_size, length)
            return
        content_type = self._request.headers.get("Content-Type", "")
        media_type, parameters = parse_header(content_type)
        if form is None:
            if media_type == _MULTIPART:
                raise _form_for_json()
            self.body = MemoryBody(max_size, length)
            return
        assert account is not None  # operations with files need an account
        files = (form.file, *self._additional)
        if form.urls is not None and media_type in _PLAIN_FORMS:
            names = [name for file in files if not file.or_text for name in file.names]
            self.body = PlainForm(content_type, self._text_names, names, max_size, length)
        else:
            self.body = MultipartBody(
                parameters.get(b"boundary", b"") if media_type == _MULTIPART else b"",
                files,
                self._text_names,
                other_files=form.other_files,
                max_file_size=account.tier.max_file_size,
                length=length,
                create_file=partial(services.work_files.create, account.tenant.id, connection.give_up_if_slow),
                detector=services.detector,
            )

    def check_query(self, operation: Operation) -> None:
        """Raises InvalidOption for a name in the query that the operation does not have, unless it only reads."""
        if self._request.method in ("GET", "HEAD"):
            return
        known = field_names(operation.query) if operation.query else ()
        check_known(self._request.query_arguments, known, place="in the query")

    def query_fields(self, model: type[Model]) -> Model:
        """The validated query. Raises InvalidParameter, also for repeated fields."""
        values: dict[str, object] = {}
        for name in field_names(model):
            arguments = self._request.query_arguments.get(name, [])
            if len(arguments) > 1:
                raise InvalidParameter(f"{name} was sent twice.", reason="duplicate", param=name)
            for argument in arguments:
                values[name] = _decoded(argument)
        return validate(model, values, from_text=True)

    def header_fields(self, model: type[Model]) -> Model:
        """The validated request headers."""
        return validate(model, dict(self._request.headers), from_text=True)

    def idempotent_request(self, account_id: str) -> IdempotentRequest | None:
        """The request's idempotency key with its scope, if it has one. A path and its JSON form have the same scope."""
        if "Idempotency-Key" not in self._request.headers:
            return None
        key = self.header_fields(IdempotencyHeader).idempotency_key
        return IdempotentRequest(account_id, self._request.path.removesuffix(JSON_FORM), key) if key else None

    @property
    def content(self) -> bytes:
        """The body of a request that is not a multipart form."""
        assert isinstance(self.body, MemoryBody)
        return self.body.content

    @property
    def form(self) -> Form:
        """The form. Raises InvalidParameter if it is incomplete or malformed."""
        assert isinstance(self.body, MultipartBody | PlainForm)
        return self.body.form

    @cached_property
    def json_values(self) -> Mapping[str, Any]:
        """The unvalidated JSON body."""
        return _read_json(self.content, self._request.headers.get("Content-Type", ""))

    def json_fields(self, model: type[Model]) -> Model:
        """The validated fields of the JSON body. Raises InvalidOption for unknown fields."""
        check_known(self.json_values, (*field_names(model), *self.options))
        return self.fields(model)

    def fields(self, model: type[Model]) -> Model:
        """The validated fields of the form, which are text, or of the JSON body."""
        return validate(model, self.values, from_text=self.has_form)

    @cached_property
    def values(self) -> Mapping[str, object]:
        """The fields of the form, as text, or of the JSON body, completed by the fields of the preset."""
        return self.form.texts if self.has_form else self.json_values

    def uploads(self, *, several: bool) -> tuple[tuple[Upload, ...], list[tuple[str, Upload]]]:
        """The files to process, `several` or one, and with their names those of options, or parameters of a tool."""
        assert self._form_fields is not None
        names, form = self._form_fields.file.names, self.form
        files = form.uploads(*names) if several else (form.file(names[0]),)
        additional: list[tuple[str, Upload]] = []
        if len(form.files) > len(files):
            additional = [(field.name, one) for field in self._additional for one in _uploads_of(form, field)]
            if self._form_fields.other_files:
                additional = [one for one in form.files if one[0] not in names]
        if both := [name for name, _ in additional if name in form.texts]:
            raise InvalidParameter(f"{both[0]} was sent twice.", reason="duplicate", param=both[0])
        return files, additional

    def remote_files(self) -> tuple[RemoteFile, ...]:
        """The files that the form names by their URLs; none if it has the files. Raises InvalidParameter."""
        assert self._form_fields is not None
        model, file = self._form_fields.urls, self._form_fields.file
        if model is None:
            return ()
        fields = self.fields(model)
        sent = self.form.uploads(*file.names)
        if fields.given and sent:
            message = f"{file.name} and {model.name} cannot be sent together."
            raise InvalidParameter(message, reason="exclusive", param=model.name)
        if fields.given and not file.minimum <= len(fields.given) <= file.maximum:
            limits = {"min": file.minimum, "max": file.maximum}
            message = f"{model.name} must have {file.minimum} to {file.maximum} URLs."
            raise InvalidParameter(message, reason="out_of_range", param=model.name, details=limits)
        hosts = [url.split("/", 3)[:3] for url in fields.given]
        headers = dict(fields.url_headers or {})  # sent to the first host only
        return tuple(
            RemoteFile(url, headers if host == hosts[0] else {}, model.name)
            for url, host in zip(fields.given, hosts, strict=True)
        )

    def add_preset(self, fields: Mapping[str, object]) -> None:
        """Adds the fields of a preset that the request lacks. A target in the request replaces the preset's target."""
        own = {name: value for name, value in self.values.items() if value is not None}
        target = field_names(KeptFields)
        has_target = not own.keys().isdisjoint(target)
        kept = {name: value for name, value in fields.items() if not (has_target and name in target)}
        if self.has_form:
            kept = {name: _as_text(value) for name, value in kept.items()}
        self.values = {**kept, **own}

    def options_given(self) -> dict[str, OptionValue]:
        """The validated options of the form or the JSON body. Raises InvalidOption."""
        given = {name: value for name, value in self.values.items() if name in self.options}
        if given:
            self._given = validate_options(self.options, given, from_text=self.has_form)
        return dict(self._given)

    @property
    def shown_options(self) -> dict[str, OptionValue]:
        """The options that `options_given` has returned, without secret ones."""
        return {name: value for name, value in self._given.items() if not self.options[name].secret}

    def outputs_given(self, outputs: Sequence[Mapping[str, Any]]) -> tuple[OutputRequest, ...]:
        """The validated outputs of the form or the JSON body, each with its options. Raises InvalidOption.

        An output of several has its own options in addition to the options of the request.
        """
        return read_outputs(self.options, outputs, self.options_given())

    def web_form(self) -> dict[str, str]:
        """The fields of an URL-encoded form. The last of repeated fields counts."""
        return dict(_read_pairs(self.content))


def _uploads_of(form: Form, field: FileField) -> tuple[Upload, ...]:
    """The files of a field. Raises InvalidParameter if there are too many."""
    found = form.uploads(*field.names)
    if len(found) <= field.maximum:
        return found
    if field.maximum == 1:
        return (form.file(field.name),)
    limits = {"min": field.minimum, "max": field.maximum}
    message = f"{field.name} must have at most {field.maximum} files."
    raise InvalidParameter(message, reason="out_of_range", param=field.name, details=limits)


def _read_pairs(body: bytes) -> list[tuple[str, str]]:
    """The fields of an URL-encoded form. Raises InvalidParameter."""
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FORM_FIELDS)
    except ValueError:
        raise malformed("The form is malformed.") from None


def _read_json(body: bytes, content_type: str) -> Mapping[str, Any]:
    """Parses a JSON object. An empty body is an empty object. Raises InvalidParameter."""
    if _charset(content_type) not in _CHARSETS:
        raise malformed("The body must be in UTF-8.")
    if not body.strip():
        return {}
    try:
        value = json.loads(
            body.decode("utf-8-sig"),
            object_pairs_hook=_unique_names,
            parse_constant=_reject_constant,
            parse_float=_finite,
        )
        json.dumps(value, ensure_ascii=False).encode()  # rejects lone surrogates, which no response can contain
        depth = _depth(value)
    except (ValueError, RecursionError):
        if b"=" in body and not body.lstrip().startswith((b"{", b"[")):
            raise _form_for_json() from None
        raise malformed("The body is not valid JSON.") from None
    if depth > _MAX_DEPTH:
        raise malformed(f"The body is nested more than {_MAX_DEPTH} levels deep.")
    if not isinstance(value, dict):
        raise malformed("The body must be a JSON object.")
    return value


def _form_for_json() -> InvalidParameter:
    message = 'This path takes a JSON object and no form; with curl, send --json \'{"name": "value"}\'.'
    return malformed(message, reason="content_type")


def _as_text(value: object) -> str:
    """A JSON value as a text field of a form."""
    return value if isinstance(value, str) else json.dumps(value)


def _decoded(argument: bytes) -> str:
    try:
        return argument.decode()
    except UnicodeDecodeError:
        raise malformed("The request is malformed.") from None


def _charset(content_type: str) -> str:
    _, parameters = parse_header(content_type)
    return parameters.get(b"charset", b"utf-8").decode("latin-1").lower()


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("duplicate name")
    return members


def _reject_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise ValueError("number out of range")
    return value


def _depth(value: object) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_depth, inner), default=0)
