"""Writes the options, errors and models of the Python client, from the OpenAPI document of this source tree.

python web/client/generate.py [FILE]
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.registry import load_registry
from web.openapi import document
from web.routes import documented_operations

Schema = Mapping[str, Any]

_FILE = Path(__file__).parent / "convertd_client" / "schema.py"
_MAX_LINE = 120  # characters
_INDENT = "    "
_HEADER = '''\
"""Options, errors and models of the convertd API.

Generated from its OpenAPI document by web/client/generate.py, which overwrites this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

from convertd_client.transport import ConvertdError
'''
_REQUEST_FIELDS = ("file", "output_format", "dry_run")  # POST /convert has these in addition to options
_ERRORS: Mapping[str, str] = MappingProxyType({"rate_limit_exceeded": "RateLimited"})  # names that differ from the code
_SECRETS = ("api_key",)  # fields that `repr` omits

_MODELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "Account": ["Account"],
        "Batch": ["BatchStatus", "NewBatch"],
        "BatchEntry": ["BatchSuccess", "BatchFailure"],
        "BatchResult": ["BatchResult"],
        "Conversion": ["Conversion"],
        "ConversionResult": ["ConversionResult", "PdfResult"],
        "Day": ["DayUsage"],
        "FidelityWarning": ["Warning"],
        "FileError": ["Failure", "ErrorBody"],
        "Formats": ["Formats"],
        "Inspection": ["PlannedConversion"],
        "Key": ["Key"],
        "NewKey": ["IssuedKey", "RotatedKey", "VerifiedKey"],
        "Pair": ["Pair", "PairUsage"],
        "Purchase": ["OpenedCheckout"],
        "RateLimit": ["RateLimit"],
        "Registration": ["Registration"],
        "Storage": ["Storage"],
        "StoredFile": ["StoredFile", "AddedFile", "FileStatus", "BatchFile"],
        "Tool": ["Tool"],
        "Usage": ["Usage"],
    }
)
"""The models, and the schemas whose fields each has. Objects of other schemas are mappings."""

_WITH_META = ("BatchResult", "ConversionResult")  # models with the fields of the response's `meta`
_NAMES: Mapping[str, str] = MappingProxyType({schema: name for name, schemas in _MODELS.items() for schema in schemas})


def main() -> None:
    """Writes the file that is given as argument, or the one of the client."""
    api = document([*documented_operations()], load_registry(), "http://localhost:8000/api/v1")
    Path(sys.argv[1] if len(sys.argv) > 1 else _FILE).write_text("\n\n".join(_render(api)))


def _render(api: Schema) -> Iterator[str]:
    """The parts of the file."""
    schemas = api["components"]["schemas"]
    form = api["paths"]["/convert"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]["properties"]
    yield _HEADER
    options = [_field(name, [form[name]], literals=True) for name in form if name not in _REQUEST_FIELDS]
    yield _class("ConvertOptions(TypedDict, total=False)", "The options of all conversions.", options)
    for schema in (schema for name, schema in schemas.items() if name.endswith("Error")):
        code = schema["properties"]["error"]["properties"]["code"]["const"]
        name = _ERRORS.get(code) or "".join(word.capitalize() for word in code.split("_"))
        yield _class(f'{name}(ConvertdError, code="{code}")', _summary(schema))
    for name, parts in _MODELS.items():
        alternatives = [schemas[part] for part in parts if part in schemas]
        fields = [*_fields(alternatives), *(_fields([schemas["Meta"]]) if name in _WITH_META else [])]
        yield "@dataclass(frozen=True, kw_only=True)\n" + _class(name, _summary(alternatives[0]), fields)


def _class(declaration: str, description: str, fields: Sequence[str] = ()) -> str:
    return "\n".join([f"class {declaration}:", f'{_INDENT}"""{description}"""', *(["", *fields] if fields else []), ""])


def _fields(schemas: Sequence[Schema]) -> Iterator[str]:
    """The lines of the fields that any of the schemas has. A field that one of them omits is optional."""
    for name in dict.fromkeys(name for schema in schemas for name in schema["properties"]):
        optional = not all(name in schema.get("required", ()) for schema in schemas)
        properties = [schema["properties"][name] for schema in schemas if name in schema["properties"]]
        yield _field(name, properties, optional=optional)


def _field(name: str, schemas: Sequence[Schema], *, optional: bool = False, literals: bool = False) -> str:
    """The line of a field, with its description in a line before it if it would be too long."""
    kinds = dict.fromkeys(kind for schema in schemas for kind in _types(schema, literals=literals))
    nullable = kinds.pop("None", kinds) is None or optional
    is_list = nullable and all(kind.startswith("tuple[") for kind in kinds)
    default = " = ()" if is_list else " | None = None" if nullable else ""
    line = f"{_INDENT}{name}: {' | '.join(kinds)}{' = field(repr=False)' if name in _SECRETS else default}"
    comment = f"# {_summary(schemas[0])}"
    if len(f"{line}  {comment}") > _MAX_LINE:
        return f"{_INDENT}{comment}\n{line}"
    return f"{line}  {comment}".removesuffix("  # ")


def _summary(schema: Schema) -> str:
    """The first sentence of the description, in one line."""
    sentence = re.sub(r"(?<=\.)\s.*", "", schema.get("description", ""), flags=re.DOTALL)
    return textwrap.shorten(sentence, _MAX_LINE - len(f'{_INDENT}""""""'), placeholder=" …")


def _types(schema: Schema, *, literals: bool) -> Iterator[str]:
    """The alternative types of a value. Enumerations are strings unless `literals` is set."""
    if "anyOf" in schema:
        for alternative in schema["anyOf"]:
            yield from _types(alternative, literals=literals)
    elif "$ref" in schema:
        yield _NAMES.get(schema["$ref"].rpartition("/")[2], "Mapping[str, Any]")
    elif literals and "enum" in schema:
        yield f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
    else:
        for kind in [schema["type"]] if isinstance(schema["type"], str) else schema["type"]:
            inner = schema.get("items" if kind == "array" else "additionalProperties")
            item = " | ".join(dict.fromkeys(_types(inner, literals=literals))) if isinstance(inner, dict) else "Any"
            names = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
            yield {"array": f"tuple[{item}, ...]", "object": f"Mapping[str, {item}]", **names}[kind]


if __name__ == "__main__":
    main()
