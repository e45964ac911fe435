"""The arguments of the tools of agents, besides the options of conversions."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field
from pydantic_core import PydanticCustomError

from web.api.field_types import URL, RequestModel, boolean, describe, field_type, integer, string

MAX_WAIT = 60
"""Seconds that `get_job` waits at most."""

PATHS = frozenset({"path", "paths", "output_path", "overwrite"})
"""Arguments about files that are read and written here."""

SERVED = frozenset({"url", "urls", "as_job"})
"""Arguments that need a server, which fetches files and has jobs."""


def _strings(value: object) -> Sequence[str]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise PydanticCustomError("malformed", "must be a list of strings.")
    return value


def _files(value: object) -> Mapping[str, str | Sequence[str]]:
    items = list(value.values()) if isinstance(value, dict) else [None]
    texts = [text for item in items for text in (item if isinstance(item, list) else [item])]
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("malformed", "must be an object of strings, or of lists of strings.")
    return value


def _object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise PydanticCustomError("malformed", "must be an object.")
    return value


_Text = Annotated[str, field_type(string, str)]
_Strings = Annotated[Sequence[str], field_type(_strings, list[str])]
_Switch = Annotated[bool, field_type(boolean, bool)]
_Format = Annotated[_Text, Field(description="The name of a format.", examples=["webp"])]
_PATH = "A file in the folder that this server may use."
_NAME = "The name of the file in `data`; its extension identifies text formats."
_OUTPUT = "The file to write; by default next to `path`. Without both, the result is returned, or stored by the server."
_TARGET = "The name of the output format; by default that of `output_path`."
_ADDITIONAL = "Additional files of the tool by name, such as `stamp`: the path, or `data:` and Base64, or a list."
_OPTIONS = "Options by name; describe_options has their values."


class FileArguments(RequestModel):
    """A file, which is exactly one of `path`, `data` and `url`, and options."""

    path: _Text | None = Field(None, description=_PATH, examples=["photo.heic"])
    data: _Text | None = Field(None, description="The content of the file, in Base64.", examples=["iVBORw0KGgo="])
    name: _Text | None = Field(None, description=_NAME, examples=["a.md"])
    url: Annotated[str, URL] | None = Field(
        None, description="The server fetches the file from here.", examples=["https://example.com/a.jpg"]
    )
    options: Annotated[Mapping[str, Any], field_type(_object, dict[str, Any])] = Field(
        {}, description=_OPTIONS, examples=[{"width": 800}]
    )


class OutputArguments(RequestModel):
    """Where the result is written, and when."""

    output_path: _Text | None = Field(None, description=_OUTPUT, examples=["photo.webp"])
    overwrite: _Switch = Field(False, description="Replace an existing file.", examples=[True])
    as_job: _Switch = Field(False, description="Respond with a job at once; get_job has its result.", examples=[True])


class ConvertArguments(FileArguments, OutputArguments):
    """The arguments of `convert`."""

    output_format: _Text | None = Field(None, description=_TARGET, examples=["webp"])


class InspectArguments(FileArguments):
    """The arguments of `inspect`."""

    output_format: _Format


class ToolArguments(FileArguments, OutputArguments):
    """The arguments of `run_tool`."""

    tool: _Text = Field(description="The name of the tool.", examples=["pdf-merge"])
    paths: _Strings | None = Field(None, description="Several files, in order.", examples=[["a.pdf", "b.pdf"]])
    contents: _Strings | None = Field(
        None, description="The contents of several files, in Base64.", examples=[["JVBERg=="]]
    )
    urls: _Strings | None = Field(
        None, description="Several files, in order.", examples=[["https://example.com/a.pdf"]]
    )
    files: Annotated[Mapping[str, str | Sequence[str]], field_type(_files, dict[str, str | list[str]])] = Field(
        {}, description=_ADDITIONAL, examples=[{"stamp": "mark.png"}]
    )


class FormatsArguments(RequestModel):
    """The arguments of `list_formats`."""

    input_format: _Format | None = None


class OptionsArguments(RequestModel):
    """The arguments of `describe_options`: either both formats, or the tool."""

    input_format: _Format | None = None
    output_format: _Format | None = None
    tool: _Text | None = Field(None, description="The name of a tool.", examples=["pdf-merge"])


class SubmitArguments(RequestModel):
    """The arguments of `get_job`."""

    job_id: _Text = Field(description="The id of the job.", examples=["job_0123456789abcdefghijkl"])
    wait: Annotated[int, integer(0, MAX_WAIT)] = Field(0, description="Seconds to wait for its end.", examples=[30])


def schema_of(model: type[RequestModel], without: frozenset[str]) -> dict[str, Any]:
    """The JSON Schema of the arguments, with some left out."""
    fields = [field for field in describe(model) if field.name not in without]
    return {
        "type": "object",
        "properties": {field.name: {**field.schema, "description": field.description} for field in fields},
        "required": [field.name for field in fields if field.required],
        "additionalProperties": False,
    }
