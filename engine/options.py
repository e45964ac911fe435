"""Options of steps: read from signatures, described as JSON Schema, validated. Page ranges such as `2,5-8`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from inspect import Parameter, signature
from types import MappingProxyType, NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from engine.errors import InvalidOption

OptionValue: TypeAlias = str | int | float | bool | Any
"""The value of an option: a plain one, or a list or dict of JSON values."""
OptionValues: TypeAlias = Mapping[str, OptionValue]
"""The values of options by name, as they travel from a request to the steps of a task."""

NO_OPTIONS: OptionValues = {}
NETWORK = "network"
PROGRAM = "program"
PROVIDED = frozenset({NETWORK, PROGRAM})  # parameters of steps, whose values the executor provides

M = TypeVar("M")

_JSON_TYPES = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "array": (list,),
    "object": (dict,),
}
_COLLECTIONS = {"array": "a list", "object": "an object"}
_BOOLEANS = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
_MAX_NAME = 50  # characters of an unknown name that are compared and returned
_FILE_ID = "file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"
_MAX_PATH = 4096  # characters of a path or id of a file
_MAX_STAGES = 20
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class NamedFile:
    """A file of any format, with the name that the client gave it, which is untrusted and has its extension."""

    name: str
    data: bytes


@dataclass(frozen=True)
class InputFile:
    """Marks a keyword-only parameter as a file: `stamp: Annotated[Raster, InputFile(RASTER, "A sentence.")]`.

    `format` is the format in memory of its payload; a tool receives a NamedFile if it is None, and a list if the
    `maximum` number of files is above 1. A request can have one of the `names` instead of a file, which a transform
    receives as text. The `minimum` is 1 without a default. `example` is the name of a file.
    """

    format: Any
    description: str
    names: tuple[str, ...] = ()
    maximum: int = 1
    minimum: int = 0
    example: str = "photo.heic"


@dataclass(frozen=True)
class Inherited:
    """Marks a parameter that receives the value of an option that an earlier step has, and is no option by itself."""


@dataclass(frozen=True)
class StageList:
    """Marks a keyword-only parameter of a tool that receives functions, each of which runs another tool: a stage.

    A function takes a list of EncodedFile, and returns the files that its tool makes of them. The parameter is an
    option: a list of objects in JSON, each with the id of a `tool` and its options, described by this sentence.
    """

    description: str
    example: list[dict[str, Any]]


@dataclass(frozen=True)
class _InputNames:
    """Marks the parameter that receives the names of the input files."""


InputNames: TypeAlias = Annotated[tuple[str, ...], _InputNames()]
"""The type of a keyword-only parameter of a tool that receives the names of its files, without extensions."""

_NEAR = 0.6  # likeness of names, from 0 to 1
_SYNONYMS: Mapping[str, str] = MappingProxyType(  # what other programs and services call our options
    {
        name: option
        for option, names in (
            ("metadata", ("strip", "exif")),
            ("dpi", ("density", "resolution")),
            ("width", ("w", "resize", "size")),
            ("height", ("h",)),
            ("quality", ("q",)),
            ("output_format", ("format", "to", "type")),
            ("gravity", ("position",)),
            ("pages", ("page",)),
            ("max_bytes", ("max_size",)),
            ("color_space", ("grayscale",)),
        )
        for name in names
    }
)


@dataclass(frozen=True)
class Option:
    """An option of a step, or of several steps together.

    `type` is the annotation without None. `default` is the value of the step if none is given; None if it depends on
    something else. Without a `required` option, the step cannot run. An option with a `file` of a transform is text in
    requests: one of its names, or what the server or the command finds the file by. An `inherited` one is an option
    only where another step has it, too. The value of an option for `stages` is a list of tools and their options.
    """

    name: str
    type: Any
    default: OptionValue | None = None
    required: bool = False
    file: InputFile | None = None
    inherited: bool = False
    stages: bool = False

    def is_file(self, value: object) -> bool:
        """Whether the value refers to a file, and is not one of the names that the option defines."""
        return self.file is not None and value not in self.file.names

    @cached_property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value: type, range and description. The default is not part of it."""
        schema: dict[str, Any] = self._adapter.json_schema()
        return {name: _inlined(part, schema) for name, part in schema.items() if name != "$defs"}

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        return TypeAdapter(self.type, config=ConfigDict(strict=True, extra="forbid"))

    def limited(self, limit: Any) -> Option:
        """The option with fewer values: the values of a Literal, or values within the limits of a pydantic Field."""
        kind, *annotations = get_args(self.type) if get_origin(self.type) is Annotated else (self.type,)
        narrowed = (limit, *annotations) if get_origin(limit) is Literal else (kind, *annotations, limit)
        return replace(self, type=Annotated[narrowed])

    @cached_property
    def secret(self) -> bool:
        """Whether the value opens protected files, as those of stages can, and must not be shown."""
        # Not read from the schema, which takes milliseconds to make in each process of a task.
        extras = (one.json_schema_extra for one in getattr(self.type, "__metadata__", ()) if isinstance(one, FieldInfo))
        return self.stages or any(isinstance(extra, dict) and extra.get("format") == "password" for extra in extras)

    @property
    def values(self) -> str:
        """The values as text for people, such as `1 to 100`, `true, false` or `text such as #fff`."""
        schema = self.schema
        if self.file is not None:
            return ", ".join([*self.file.names, "a file"])
        if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
            return ", ".join(map(str, choices))
        limits = _range_text(_limits(schema, "minimum", "maximum")).removeprefix(" from ").removeprefix(" of ")
        if schema["type"] in _COLLECTIONS:
            return f"JSON such as {_example(schema)}"
        if limits or schema["type"] != "string":
            return limits or {"boolean": "true, false"}.get(schema["type"], str(schema["type"]))
        return f"text such as {schema['examples'][0]}" if "examples" in schema and not self.secret else "text"

    def has_type_of(self, other: Option) -> bool:
        """Whether both take the same values, described by the same sentence."""
        return self.type is other.type or self.schema == other.schema

    def validate(self, value: object, *, from_text: bool = False) -> OptionValue:
        """Returns the validated value. With `from_text`, a string is read as JSON if the type is not a string.

        Raises InvalidOption, reason `out_of_range`, `unknown` (not one of `details.available`), `not_an_integer` or
        `malformed`.
        """
        kind = self.schema["type"]
        if from_text and isinstance(value, str) and kind != "string":
            text = value
            value = _READERS.get(kind, _read_number)(text)
            if kind == "array" and not isinstance(value, list) and self.schema["items"].get("type") == "string":
                value = split_list(text)
        if kind == "string" and type(value) is int and not self.secret:
            value = str(value)  # such as the number of a page
        if type(value) not in _JSON_TYPES[kind]:  # booleans are integers for Python
            raise self._error(value)
        try:
            valid: OptionValue = self._adapter.validate_python(value)
        except ValidationError as invalid:
            problem = invalid.errors(include_url=False, include_input=False)[0]
            if problem["type"] == "value_error":  # raised by a validator in the annotation
                message = f"{self.name} {problem['ctx']['error']}"
                raise InvalidOption(message, reason="malformed", param=self.name) from None
            if problem["loc"]:
                raise self._part_error(problem) from None
            raise self._error(value) from None
        return valid

    def _part_error(self, problem: Mapping[str, Any]) -> InvalidOption:
        """The error of a part of JSON, which the message names, such as `pages[0].rotate`."""
        place = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in problem["loc"])
        return InvalidOption(f"{self.name}{place}: {problem['msg']}.", reason="malformed", param=self.name)

    def _error(self, value: object) -> InvalidOption:
        schema = self.schema
        kind = schema["type"]
        choices = schema.get("enum", [schema["const"]] if "const" in schema else [])
        limits = {}
        if choices:
            reason = "unknown"
            expected = f"be one of {', '.join(map(str, choices))}"
            limits = {"available": choices}
        elif kind in ("integer", "number"):
            limits = _limits(schema, "minimum", "maximum")
            right_type = type(value) in _JSON_TYPES[kind]
            reason = "out_of_range" if right_type else "not_an_integer" if kind == "integer" else "malformed"
            expected = f"be {'an integer' if kind == 'integer' else 'a number'}{_range_text(limits)}"
        elif kind == "boolean":
            reason = "malformed"
            expected = "be true or false"
        elif kind in _COLLECTIONS and type(value) in _JSON_TYPES[kind]:
            limits = _limits(schema, "minItems", "maxItems") or _limits(schema, "minProperties", "maxProperties")
            reason = "out_of_range"
            expected = f"have a number of entries{_range_text(limits)}"
        elif kind in _COLLECTIONS:
            reason = "malformed"
            expected = f"be {_COLLECTIONS[kind]} in JSON, such as {_example(schema)}"
        elif isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
            limits = _limits(schema, "minLength", "maxLength")
            reason = "out_of_range"
            expected = f"have at most {schema['maxLength']} characters"
        elif isinstance(value, str):
            examples = "" if self.secret else " or ".join(schema.get("examples", ()))
            form = f"be text such as {examples}" if examples else "be well-formed"
            reason = "malformed"
            expected = f"{form}. {schema.get('description', '')}".rstrip(". ")
        else:
            reason = "malformed"
            expected = "be a string"
        return InvalidOption(f"{self.name} must {expected}.", reason=reason, param=self.name, details=limits)


def default_text(common: OptionValue | None, defaults: Iterable[tuple[str, OptionValue | None]]) -> str:
    """The defaults of formats for people, such as `5` or `80 (jpeg), 87 (webp)`; the common one if they have none."""
    formats: dict[str, set[str]] = {}
    for name, default in defaults:
        if default is not None:
            formats.setdefault(_value_text(default), set()).add(name)
    if len(formats) > 1:
        return ", ".join(f"{text} ({', '.join(sorted(names))})" for text, names in formats.items())
    return next(iter(formats), "" if common is None else _value_text(common))


def _value_text(value: OptionValue) -> str:
    """The value of an option for people."""
    return value if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else json.dumps(value)


def _example(schema: Mapping[str, Any]) -> str:
    """The first example of a list or an object, or an empty one, as JSON."""
    return json.dumps(next(iter(schema.get("examples", ())), [] if schema["type"] == "array" else {}))


def _limits(schema: Mapping[str, Any], minimum: str, maximum: str) -> dict[str, Any]:
    return {name: schema[key] for name, key in (("min", minimum), ("max", maximum)) if key in schema}


def _range_text(limits: Mapping[str, Any]) -> str:
    match limits:
        case {"min": minimum, "max": maximum}:
            return f" from {minimum} to {maximum}"
        case {"min": minimum}:
            return f" of at least {minimum}"
        case {"max": maximum}:
            return f" of at most {maximum}"
    return ""


def read_boolean(text: str) -> bool | str:
    """The boolean that a text field of a form means, ignoring case; otherwise `text`."""
    return _BOOLEANS.get(text.lower(), text)


def _read_number(text: str) -> OptionValue:
    """The number that `text` is in JSON; otherwise `text`."""
    if re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][-+]?[0-9]{1,3})?", text) else text


def _read_json(text: str) -> object:
    """The list or object that a text field of a form is in JSON; otherwise `text`."""
    with suppress(ValueError, RecursionError):
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()  # raises for halves of characters, too
        return value
    return text


_READERS: Mapping[str, Callable[[str], object]] = MappingProxyType(
    {"boolean": read_boolean, "array": _read_json, "object": _read_json}
)


def _inlined(part: Any, schema: Mapping[str, Any]) -> Any:
    """A part of a schema, with definitions of the schema instead of references to them."""
    if isinstance(part, list):
        return [_inlined(one, schema) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        return _inlined(schema["$defs"][part["$ref"].rpartition("/")[2]], schema)
    return {name: _inlined(one, schema) for name, one in part.items()}


class Parameters(NamedTuple):
    """The keyword-only parameters of a step.

    `options` has the options by name, those in groups and files among them; `groups` the parameters that group several
    options in a dataclass; `names` the one for the names of the input files, if any; `provided` those of PROVIDED.
    """

    options: dict[str, Option]
    groups: dict[str, type[Any]]
    names: str | None
    provided: frozenset[str]


def read_parameters(function: Callable[..., Any]) -> Parameters:
    """Returns the parameters of a step.

    Raises TypeError for other parameters than the payload and options, and for an option whose annotation is not str,
    int, float, bool, a Literal of one of them, or a list or dict of JSON values, with a range, a description and None
    at most.
    """
    keywords = _read_keywords(function)
    names = next((name for name, (_, kind) in keywords.items() if _mark(kind, _InputNames) is not None), None)
    groups = {name: kind for name, (_, kind) in keywords.items() if isinstance(kind, type) and is_dataclass(kind)}
    found = [
        option
        for name, (parameter, kind) in keywords.items()
        if name not in {names, *PROVIDED}
        for option in (_read_group(kind) if name in groups else [_read_option(name, parameter.default, kind)])
    ]
    return Parameters({option.name: option for option in found}, groups, names, PROVIDED.intersection(keywords))


def arguments(groups: Mapping[str, type[Any]], declared: Iterable[str], options: OptionValues) -> dict[str, Any]:
    """Returns the `declared` options as arguments of a step's function, those in one of its groups as a dataclass."""
    given: dict[str, Any] = {name: options[name] for name in declared if name in options}
    for parameter, group in groups.items():
        given[parameter] = group(**{one.name: given.pop(one.name) for one in fields(group) if one.name in given})
    return given


def _read_group(group: Any) -> list[Option]:
    types = get_type_hints(group, include_extras=True)
    return [_read_option(one.name, one.default, _without_none(one.name, types[one.name])) for one in fields(group)]


def _mark(annotation: Any, kind: type[M]) -> M | None:
    return next((one for one in getattr(annotation, "__metadata__", ()) if isinstance(one, kind)), None)


def _read_keywords(function: Callable[..., Any]) -> dict[str, tuple[Parameter, Any]]:
    """Returns the keyword-only parameters by name, with their annotations without None. Raises TypeError."""
    payload, *others = signature(function).parameters.values()
    keywords = [parameter for parameter in others if parameter.kind is Parameter.KEYWORD_ONLY]
    if payload.kind not in _POSITIONAL or len(keywords) < len(others):
        raise TypeError(f"{function.__name__}: a step has one payload; its options are keyword-only parameters")
    # The annotation of the payload may name a type that is only imported for type checkers.
    annotations = SimpleNamespace(__annotations__={parameter.name: parameter.annotation for parameter in keywords})
    types = get_type_hints(annotations, function.__globals__, include_extras=True)
    return {parameter.name: (parameter, _without_none(parameter.name, types[parameter.name])) for parameter in keywords}


def _without_none(name: str, annotation: Any) -> Any:
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kind, *others = (kind for kind in get_args(annotation) if kind is not NoneType)
    if others:
        raise TypeError(f"the option {name} has several types")
    return kind


def _read_option(name: str, default: Any, annotation: Any) -> Option:
    if file := _mark(annotation, InputFile):
        examples = [*file.names, _FILE_ID][:1]
        description = file.description
        named = Field(
            max_length=_MAX_PATH, examples=examples, description=description, json_schema_extra={"x-file": True}
        )
        return Option(name, Annotated[str, named], file=replace(file, minimum=int(default is Parameter.empty)))
    if stages := _mark(annotation, StageList):
        limits = Field(min_length=1, max_length=_MAX_STAGES, examples=[stages.example], description=stages.description)
        return Option(name, Annotated[list[dict[str, Any]], limits], required=True, stages=True)
    kind = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    kinds = {type(value) for value in get_args(kind)} if get_origin(kind) is Literal else {kind}
    if get_origin(kind) not in (list, dict) and (len(kinds) > 1 or not kinds <= {str, int, float, bool}):
        raise TypeError(f"the option {name} is not a plain value, a list or a dict")
    required = default is Parameter.empty
    inherited = _mark(annotation, Inherited) is not None
    return Option(name, annotation, None if required else default, required, inherited=inherited)


def join_options(parts: Iterable[Mapping[str, Option]]) -> dict[str, Option]:
    """Returns the options of several steps together. Among different defaults, the last one applies."""
    joined: dict[str, Option] = {}
    for option in (option for part in parts for option in part.values()):
        known = joined.setdefault(option.name, option)
        default = known.default if option.default is None else option.default
        required = known.required or option.required
        inherited = known.inherited and option.inherited
        if (default, required, inherited) != (known.default, known.required, known.inherited):
            joined[option.name] = replace(known, default=default, required=required, inherited=inherited)
    return joined


def options_schema(options: Mapping[str, Option]) -> dict[str, Any]:
    """Returns the JSON Schema of an object with these options and no others."""
    properties = {
        name: option.schema if option.default is None else {**option.schema, "default": option.default}
        for name, option in options.items()
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": properties,
        "required": [name for name, option in options.items() if option.required],
        "additionalProperties": False,
    }


def validate_options(
    available: Mapping[str, Option], given: Mapping[str, object], *, from_text: bool = False
) -> dict[str, OptionValue]:
    """Returns the values of options, without None and defaults, which generated clients send for options not given.

    `from_text` is as in `Option.validate`.

    Raises InvalidOption for an invalid value, reason `missing` for a required option that is not given, and reason
    `unknown_parameter` for an unknown name.
    """
    for name in given:
        if name not in available:
            raise unknown_option(name, available)
    for name, option in available.items():
        if option.required and given.get(name) is None:
            raise InvalidOption(f"{name} is missing.", reason="missing", param=name)
    values = {
        name: available[name].validate(value, from_text=from_text) for name, value in given.items() if value is not None
    }
    return {name: value for name, value in values.items() if value != available[name].default}


def unknown_option(name: str, available: Iterable[str], *, place: str = "") -> InvalidOption:
    """Returns the error for a name that is not among the available ones, which it lists with the nearest first.

    The message names the option that other programs call so, or that is spelled nearly so, if there is one. `place` is
    where the name was found, such as "in the query".
    """
    name = name[:_MAX_NAME]
    spelt = name.lower().replace("-", "_")
    likeness = {known: SequenceMatcher(None, spelt, known).ratio() for known in available}
    meant = meant_option(name)
    likeness |= {meant: 2.0} if meant in likeness else {}
    nearest = sorted(likeness, key=likeness.__getitem__, reverse=True)
    message = f"There is no parameter {name}{place and ' '}{place}."
    if nearest and likeness[nearest[0]] >= _NEAR:
        message += f" The nearest one is {nearest[0]}."
    return InvalidOption(message, reason="unknown_parameter", param=name, details={"available": nearest})


def meant_option(name: str) -> str | None:
    """The name of the option that other programs call by this name, if there is one."""
    return _SYNONYMS.get(name.lower().replace("-", "_"))


def split_list(text: str) -> list[str]:
    """The items of a list as text: separated by commas, or an array of strings and integers in JSON."""
    if text.strip().startswith("["):
        with suppress(ValueError, RecursionError):
            found = json.loads(text)
            if isinstance(found, list) and all(type(item) in (str, int) for item in found):
                return list(map(str, found)) or [""]
    return text.split(",")
