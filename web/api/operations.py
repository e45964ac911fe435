"""Operations: the declared inputs, responses and errors of a resource's methods.

The HTTP layer reads requests as declared; the OpenAPI document is generated from the declarations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final, Literal, TypeVar

from engine.conversions import AnyTool
from engine.options import InputFile, Option
from engine.registry import Registry
from web.api.field_types import RequestModel, field_names
from web.api.fields import ChargeHeaders, IdempotencyHeader, ToolFields
from web.api.headers import DOWNLOAD_HEADERS
from web.api.job_fields import PreferHeader
from web.api.schemas.files import ConversionResult
from web.api.schemas.jobs import Job
from web.api.url_fields import UrlFields, UrlsFields

Tag = Literal[
    "Conversion",
    "Files",
    "Batches",
    "Jobs",
    "Presets",
    "PDF",
    "Tools",
    "Account",
    "Webhooks",
    "Credits",
    "Registration",
    "Catalogue",
    "Service",
]
Access = Literal["key", "address", "not_cross_site", "open", "form", "session", "trial", "preview"]
"""Who may send requests to a resource.

`open`: everyone, without a rate limit. `key`: clients with an API key, rate-limited by account. All others are
rate-limited by address: `address`: everyone. `not_cross_site`: everyone but pages of other sites. `form`: browsers,
whose forms must come from a page of this server. `session` are forms that also need a session of the dashboard.
`trial` and `preview` are forms of scripts, with a rate limit of their own: they are for the account that is signed in,
or need a trial conversion that is left; the number of previews of a day is limited for both.
"""
Method = TypeVar("Method", bound=Callable[..., Any])

ZIP: Final = "application/zip"
"""The media type of results with several files."""

ALL_TARGETS: Final = ("*/*",)
"""The media types of all results."""

JSON_FORM: Final = "/json"
"""The end of the path of a negotiated operation where its response is always JSON."""

CONVERSION_ERRORS: Final = (
    "invalid_file_type",
    "unsupported_conversion",
    "file_too_large",
    "no_credits",
    "processing_failed",
)
"""The error codes of conversions."""

METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")

_BYTES: Final = "application/octet-stream"
_ATTRIBUTE: Final = "__operation__"
_FILE_HEADERS: Final = ("Content-Disposition", "X-Warnings", "X-Width", "X-Height", *DOWNLOAD_HEADERS)
_RANGE_HEADERS: Final = ("Accept-Ranges", "ETag")
_CACHE_HEADERS: Final = ("Cache-Control", "ETag")


@dataclass(frozen=True)
class FileField:
    """The field of a multipart form with one file, or `minimum` to `maximum` files. `aliases` are alternative names.

    With `or_text`, a part without a file name is text. `example` is the name of such a file.
    """

    name: str
    description: str
    minimum: int = 1
    maximum: int = 1
    aliases: tuple[str, ...] = ()
    media_type: str = "application/octet-stream"
    or_text: bool = False
    example: str = "photo.heic"

    @cached_property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases)


@dataclass(frozen=True)
class FormFields:
    """A multipart form: the files to process, text fields, and `additional` files.

    With `urls`, it may have URLs of the files to process instead of these. With `other_files`, files of any other name
    are additional ones. Fields that are `left_out` of the document have an operation of their own there.
    """

    file: FileField
    fields: type[RequestModel] = RequestModel
    additional: tuple[FileField, ...] = ()
    urls: type[UrlFields | UrlsFields] | None = None
    other_files: bool = False
    left_out: frozenset[str] = frozenset()

    @property
    def files(self) -> tuple[FileField, ...]:
        """All fields with files."""
        return (self.file, *self.additional)


@dataclass(frozen=True)
class Response:
    """A successful response.

    `schema` is the type of its JSON: of `data` in the envelope, or of the whole body if `enveloped` is false. Responses
    without a schema have a body only with `media_types`. `headers` are sent in addition to the common ones.
    """

    status: int
    description: str
    schema: Any = None
    enveloped: bool = True
    media_types: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


def json_response(schema: Any, description: str = "") -> Response:
    """JSON in the envelope. The default description is the schema's docstring."""
    return Response(200, description or inspect.getdoc(schema) or "", schema)


def job_response() -> Response:
    """The job of a request that is processed in the background."""
    return Response(202, "The job, if the request is processed in the background.", Job, headers=("Location",))


def file_response(media_types: tuple[str, ...] = ALL_TARGETS) -> Response:
    """The bytes of a result."""
    return Response(200, "The file.", media_types=media_types, headers=(*_FILE_HEADERS, *_RANGE_HEADERS))


def download_responses() -> tuple[Response, ...]:
    """The bytes of a stored result, a range of them, or 304."""
    part = Response(206, "The requested range of the file.", media_types=ALL_TARGETS)
    return (
        file_response(),
        replace(part, headers=(*_FILE_HEADERS, *_RANGE_HEADERS, "Content-Range")),
        Response(304, "The client's copy is current.", headers=_RANGE_HEADERS),
    )


def archive_response() -> Response:
    """A ZIP of results."""
    return Response(200, "The ZIP.", media_types=(ZIP,), headers=("Content-Disposition", *DOWNLOAD_HEADERS))


def cacheable(response: Response) -> tuple[Response, ...]:
    """The response, or 304."""
    not_modified = Response(304, "The client's copy is current.", headers=_CACHE_HEADERS)
    return replace(response, headers=_CACHE_HEADERS), not_modified


@dataclass(frozen=True, kw_only=True)
class Operation:
    """Decorates a method of a handler, whose docstring is the documentation: a summary line, then a description.

    `id` is a subject and a verb, such as `jobsGet`, or the words of the id of a tool. `codes` are error codes in
    addition to the ones that the other arguments imply. If `conversion_options` is set, the body has the options of all
    conversions as fields, too, those that are `without_secrets` if that is set; with a `tool`, it has the options of
    the tool. `options` are these, by name, for the plugins of a server. If `queued` is set, the request is refused
    before its body arrives while the job queue is full. If `json_schema` is set, the response is a file, or for clients
    that accept JSON a value of this schema; with `always_json` it is JSON for all clients.
    """

    id: str
    tag: Tag
    responses: tuple[Response, ...]
    codes: tuple[str, ...] = ()
    query: type[RequestModel] | None = None
    headers: type[RequestModel] | None = None
    json: type[RequestModel] | None = None
    form: FormFields | None = None
    conversion_options: bool = False
    without_secrets: bool = False
    tool: AnyTool | None = None
    queued: bool = False
    json_schema: Any = None
    always_json: bool = False
    documentation: str = ""
    options: Mapping[str, Option] = field(default_factory=dict)

    def __call__(self, method: Method) -> Method:
        setattr(method, _ATTRIBUTE, replace(self, documentation=inspect.getdoc(method) or ""))
        return method

    @property
    def repeatable(self) -> bool:
        """Whether clients can repeat the request safely, with an idempotency key."""
        return self.headers is not None and issubclass(self.headers, IdempotencyHeader)

    @property
    def follows_preferences(self) -> bool:
        """Whether the header Prefer has an effect."""
        return self.headers is not None and issubclass(self.headers, PreferHeader)

    @property
    def negotiated(self) -> bool:
        """Whether the Accept header decides between a file and JSON."""
        return self.json_schema is not None and not self.always_json

    @cached_property
    def takes_several(self) -> bool:
        """Whether the form has several files to process."""
        return self.form is not None and self.form.file.maximum > 1

    @cached_property
    def text_names(self) -> frozenset[str]:
        """The names of the text fields of the form."""
        models = (self.form.fields, self.form.urls) if self.form else ()
        return frozenset((*self.options, *chain.from_iterable(field_names(model) for model in models if model)))

    def with_options(self, registry: Registry) -> Operation:
        """The operation with the options that its body may have."""
        options: Mapping[str, Option] = {}
        if self.tool is not None:
            options = registry.tool_options(self.tool.name)
        elif self.conversion_options:
            options = registry.options
        if self.without_secrets:
            options = {name: option for name, option in options.items() if not option.secret}
        return replace(self, options=options)

    def for_page(self) -> Operation:
        """The operation for a script of a page: with files only, and without jobs."""
        assert self.form is not None
        return replace(self, form=replace(self.form, fields=RequestModel, urls=None), headers=None)

    @cached_property
    def additional_files(self) -> tuple[FileField, ...]:
        """The fields of files that are options, or parameters of the tool."""
        fields = [
            FileField(name, option.file.description, 0, or_text=True, example=option.file.example)
            for name, option in self.options.items()
            if option.file is not None
        ]
        return (*(self.form.additional if self.form else ()), *fields)

    def as_json(self, path: str) -> Operation:
        """The operation at the path with JSON_FORM, which stores the result of the operation at `path`."""
        summary, _, _ = self.documentation.partition("\n")
        description = f"Does the same as `POST {path}`. The response describes the stored result."
        return replace(
            self,
            id=f"{self.id}ToJson",
            responses=(
                json_response(self.json_schema, "The stored result."),
                *(response for response in self.responses if response.status == 202),
            ),
            always_json=True,
            form=self.form and replace(self.form, left_out=frozenset({"dry_run"})),
            documentation=f"{summary} and store the result\n\n{description} Costs one credit.",
        )


def operations_of(handler: type) -> Mapping[str, Operation]:
    """The operations of a handler's methods."""
    methods = {name: getattr(handler, name.lower(), None) for name in METHODS}
    found = {name: getattr(method, _ATTRIBUTE, None) for name, method in methods.items()}
    return {name: operation for name, operation in found.items() if operation is not None}


@dataclass(frozen=True)
class Route:
    """A resource: its path for logs and metrics, with {} for variables, and the operations of its methods."""

    label: str
    operations: Mapping[str, Operation] = field(default_factory=dict)


def tool_operation(tool: AnyTool) -> Operation:
    """The operation that runs a tool on the files of a form."""
    media_type = tool.accepted[0].media_type if len(tool.accepted) == 1 else _BYTES
    example = f"document.{tool.sources[0].extensions[0]}" if tool.sources else FileField.example
    if tool.takes_several:
        least = tool.inputs[0]
        most = tool.inputs[-1]
        aliases = ("files", "file") if least == 1 else ("files",)
        file = FileField(
            "files[]", f"The {tool.reads} files, in order.", least, most, aliases, media_type, example=example
        )
    else:
        file = FileField("file", f"The {tool.reads} file.", media_type=media_type, example=example)
    path = tool_path(tool)
    media_types = [tool.target.media_type]
    if tool.archive:  # the frequent one first
        media_types.insert(1 if tool.stages_parameter else 0, ZIP)
    return Operation(
        id=camel_case(tool.name),
        tag="PDF" if path.startswith("/pdf/") else "Tools",
        form=FormFields(
            file,
            ToolFields,
            additional=tuple(_additional_file(name, one) for name, one in tool.files.items()),
            urls=UrlsFields if tool.takes_several else UrlFields,
            other_files=tool.stages_parameter is not None,
        ),
        tool=tool,
        headers=ChargeHeaders,
        responses=(file_response((*media_types,)), job_response()),
        codes=CONVERSION_ERRORS,
        queued=True,
        json_schema=ConversionResult,
        documentation=f"{tool.title}\n\n{tool.summary} With `Accept: application/json`, the response is the JSON of "
        f"`POST {path}{JSON_FORM}`. Costs one credit.",
    )


def _additional_file(name: str, file: InputFile) -> FileField:
    aliases = (f"{name}[]",) if file.maximum > 1 else ()
    return FileField(name, file.description, file.minimum, file.maximum, aliases, example=file.example)


def tool_path(tool: AnyTool) -> str:
    """The path of a tool below the path of the API: tools of PDFs are below /pdf."""
    return f"/pdf/{tool.name.removeprefix('pdf-')}" if tool.name.startswith("pdf-") else f"/tools/{tool.name}"


def camel_case(text: str) -> str:
    """The words of a name as one: `pdf-merge` -> `pdfMerge`."""
    words: list[str] = re.findall("[A-Za-z0-9]+", text)
    return words[0].lower() + "".join(word.capitalize() for word in words[1:])
