"""Writes the options, errors and models of the Python client, or builds the package of another language.

Both are made from the OpenAPI document of this source tree:

python web/client/generate.py [python [FILE]]
python web/client/generate.py LANGUAGE [FOLDER]
"""

import json
import re
import sys
import textwrap
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from engine.registry import load_registry
from web.client.package_builds import LANGUAGES, BuildError, build
from web.docs.openapi import document
from web.routes import documented_operations

Schema = Mapping[str, Any]

_FILE = Path(__file__).parent / "convertd_client" / "schema.py"
_BUILDS = Path(__file__).parent / "build"
_MAX_LINE = 120  # characters
_INDENT = "    "
_HEADER = '''\
"""Options, errors and models of the convertd API.

Generated from its OpenAPI document by web/client/generate.py, which overwrites this file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, BinaryIO, Literal, TypedDict

from convertd_client.transport import ConvertdError
'''
# POST /convert has these in addition to options.
_REQUEST_FIELDS = ("file", "url", "url_headers", "output_format", "dry_run", "tag", "webhook_url")
_ERRORS: Mapping[str, str] = MappingProxyType({"rate_limit_exceeded": "RateLimited"})  # names that differ from the code
_OMITTED = ("kind",)  # fields that classes make needless
_REPLACED: Mapping[str, str] = MappingProxyType({"ToolOptionName": "ToolOption"})  # schemas by what they stand for
_SECRETS = ("api_key",)  # fields that `repr` omits
_WITH_META = ("BatchResult", "ConversionResult")  # models with the fields of the response's `meta`
_MODELS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "Account": ["accountGet"],
        "Batch": ["batchesGet", "batchesCreate"],
        "BatchEntry": ["batchesConvert.results"],
        "BatchResult": ["batchesConvert"],
        "Conversion": ["conversionsGet"],
        "ConversionResult": ["filesConvert", "pdfMergeToJson", "pdfDeletePagesToJson"],
        "Day": ["usageGet.by_day"],
        "FidelityWarning": ["filesConvert.warnings"],
        "FileError": ["filesGet.error", "batchesConvert.results.error"],
        "FileList": ["filesList"],
        "Formats": ["formatsList"],
        "Inspection": ["inspect"],
        "Job": ["jobsGet", "jobsCancel"],
        "JobFailure": ["jobsGet.error"],
        "JobList": ["jobsList"],
        "Key": ["keysList.keys"],
        "Link": ["linksCreate"],
        "NewKey": ["keysCreate", "keysRotate", "accountVerify"],
        "Pair": ["formatsList.conversions", "usageGet.by_conversion"],
        "Preset": ["presetsGet", "presetsSave", "presetsList.presets"],
        "OptionDescription": ["toolsList.options"],
        "OutputResult": ["filesConvert.outputs"],
        "Purchase": ["creditsPurchase"],
        "RateLimit": ["accountGet.rate_limit"],
        "Registration": ["accountRegister"],
        "Storage": ["accountGet.storage"],
        "StoredFile": ["filesUpload", "filesGet", "batchesAddFile", "batchesGet.files", "filesList.files"],
        "Tool": ["toolsList.tools"],
        "Usage": ["usageGet"],
    }
)
"""The models, with the operations whose responses, or fields of responses, each describes.

A schema belongs to the first of its models. Objects of schemas that belong to none are mappings.
"""


def main() -> None:
    """Writes what the arguments name: the module of the Python client, or the package of a language."""
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("language", nargs="?", choices=("python", *LANGUAGES), default="python")
    parser.add_argument("path", nargs="?", type=Path, help="The file, or the folder, which must be empty.")
    given = parser.parse_args()
    registry = load_registry()
    api = document(documented_operations(registry), registry, "http://localhost:8000/api/v1")
    if given.language == "python":
        (given.path or _FILE).write_text("\n\n".join(_Module(api).classes()))
        return
    try:
        build(given.language, given.path or _BUILDS / given.language, api)
    except BuildError as error:
        sys.exit(str(error))


class _Module:
    """The module for an OpenAPI document."""

    def __init__(self, api: Schema) -> None:
        self._schemas: Schema = api["components"]["schemas"]
        found = (operation for path in api["paths"].values() for operation in path.values())
        self._operations = {operation["operationId"]: operation for operation in found if "operationId" in operation}
        self._models: dict[str, str] = {}  # by the name of the schema
        for model, places in _MODELS.items():
            for name in (name for place in places for name in self._schemas_at(place)):
                self._models.setdefault(name, model)

    def classes(self) -> Iterator[str]:
        """The header of the module and its classes."""
        yield _HEADER
        form = self._operations["convert"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        fields = form["allOf"][0]["properties"] | self._schemas["ConvertOptions"]["properties"]
        options = [self._field(name, [fields[name]], options=True) for name in fields if name not in _REQUEST_FIELDS]
        yield _class("ConvertOptions(TypedDict, total=False)", "The options of all conversions.", options)
        for schema in (schema for name, schema in self._schemas.items() if name.endswith("Error")):
            code = schema["properties"]["error"]["properties"]["code"]["const"]
            name = _ERRORS.get(code) or "".join(word.capitalize() for word in code.split("_"))
            yield _class(f'{name}(ConvertdError, code="{code}")', _summary(schema))
        for model in _MODELS:
            schemas = [self._schemas[name] for name, found in self._models.items() if found == model]
            fields = [*self._fields(schemas), *(self._fields([self._schemas["Meta"]]) if model in _WITH_META else [])]
            yield "@dataclass(frozen=True, kw_only=True)\n" + _class(model, _summary(schemas[0]), fields)

    def _schemas_at(self, place: str) -> list[str]:
        """The names of the schemas of a response, or of one of its fields."""
        operation, *fields = place.split(".")
        response = self._operations[operation]["responses"]["200"]["content"]["application/json"]["schema"]
        names = _references(response["properties"]["data"])
        for field in fields:
            names = _references([self._schemas[name]["properties"].get(field) for name in names])
        return names

    def _fields(self, schemas: Sequence[Schema]) -> Iterator[str]:
        """The lines of the fields that any of the schemas has. A field that one of them omits is optional."""
        for name in dict.fromkeys(name for schema in schemas for name in schema["properties"]):
            if name in _OMITTED:
                continue
            optional = not all(name in schema.get("required", ()) for schema in schemas)
            properties = [schema["properties"][name] for schema in schemas if name in schema["properties"]]
            yield self._field(name, properties, optional=optional)

    def _field(self, name: str, schemas: Sequence[Schema], *, optional: bool = False, options: bool = False) -> str:
        """The line of a field, with its description in a line before it if it would be too long.

        Fields of `options` have no default: they are not sent if they are not given.
        """
        kinds = dict.fromkeys(kind for schema in schemas for kind in self._types(schema, literals=options))
        nullable = (kinds.pop("None", kinds) is None and not options) or optional
        is_list = nullable and all(kind.startswith("tuple[") for kind in kinds)
        default = " = ()" if is_list else " | None = None" if nullable else ""
        line = f"{_INDENT}{name}: {' | '.join(kinds)}{' = field(repr=False)' if name in _SECRETS else default}"
        comment = f"# {_summary(schemas[0])}"
        if len(f"{line}  {comment}") > _MAX_LINE:
            return f"{_INDENT}{comment}\n{line}"
        return f"{line}  {comment}".removesuffix("  # ")

    def _types(self, schema: Schema, *, literals: bool) -> Iterator[str]:
        """The alternative types of a value. Enumerations are strings unless `literals` is set."""
        if "anyOf" in schema:
            for alternative in schema["anyOf"]:
                yield from self._types(alternative, literals=literals)
        elif "$ref" in schema and literals:
            yield from self._types(self._schemas[_references(schema)[0]], literals=literals)
        elif "$ref" in schema:
            (name,) = _references(schema)
            yield self._models.get(_REPLACED.get(name, name), "Mapping[str, Any]")
        elif schema.get("x-file"):
            yield from ("str", "PathLike[str]", "bytes", "BinaryIO")
        elif literals and "enum" in schema:
            yield f"Literal[{', '.join(json.dumps(value) for value in schema['enum'])}]"
        else:
            for kind in [schema["type"]] if isinstance(schema["type"], str) else schema["type"]:
                inner = schema.get("items" if kind == "array" else "additionalProperties")
                types = self._types(inner, literals=literals) if inner and isinstance(inner, dict) else ["Any"]
                item = " | ".join(dict.fromkeys(types))
                names = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
                yield {"array": f"tuple[{item}, ...]", "object": f"Mapping[str, {item}]", **names}[kind]


def _class(declaration: str, description: str, fields: Sequence[str] = ()) -> str:
    return "\n".join([f"class {declaration}:", f'{_INDENT}"""{description}"""', *(["", *fields] if fields else []), ""])


def _references(schema: object) -> list[str]:
    """The names of the schemas that a schema refers to, not those that these refer to."""
    return re.findall(r"#/components/schemas/(\w+)", json.dumps(schema))


def _summary(schema: Schema) -> str:
    """The first sentence of the description, in one line."""
    sentence = re.sub(r"(?<=\.)\s.*", "", schema.get("description", ""), flags=re.DOTALL)
    return textwrap.shorten(sentence, _MAX_LINE - len(f'{_INDENT}""""""'), placeholder=" …")


if __name__ == "__main__":
    main()
