"""Builds packages for other languages than Python: the OpenAPI document as code, and the class in `packages`.

The generators are no part of the project: openapi-generator needs Java, and openapi-ts, which npm installs, Node.js.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

_SOURCES = Path(__file__).parent / "packages"
_GENERATOR = "openapi-generator-cli"
_UNUSED = ("git_push.sh", "appveyor.yml", ".travis.yml", ".gitlab-ci.yml", ".github/**", "api/openapi.yaml", "test/**")

_PROPERTIES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "php": {"invokerPackage": "Convertd", "composerPackageName": "convertd/client", "artifactVersion": "{version}"},
        "go": {"packageName": "convertd", "packageVersion": "{version}", "enumClassPrefix": "true"},
        "java": {
            "library": "native",  # the HTTP client of Java itself
            "groupId": "convertd",
            "artifactId": "convertd-client",
            "artifactVersion": "{version}",
            "invokerPackage": "convertd",
            "apiPackage": "convertd.api",
            "modelPackage": "convertd.model",
            "openApiNullable": "false",
            "useJakartaEe": "true",
        },
        "csharp": {
            "library": "httpclient",
            "packageName": "Convertd",
            "packageVersion": "{version}",
            "targetFramework": "net8.0",
        },
    }
)
"""The properties of openapi-generator, by the name of its generator."""

_PLACES: Mapping[str, str] = MappingProxyType(
    {"php": "lib", "go": ".", "java": "src/main/java/convertd", "csharp": "src/Convertd"}
)
"""The folders of the class that converts files, in the packages of openapi-generator."""

LANGUAGES = ("typescript", *_PROPERTIES)
"""The languages of packages."""


class BuildError(Exception):
    """The package cannot be built; the message says what to do."""


def build(language: str, folder: Path, api: Mapping[str, Any]) -> None:
    """Writes the package of one of the LANGUAGES into a folder, which must be empty or missing. Raises BuildError."""
    if folder.exists() and any(folder.iterdir()):
        raise BuildError(f"{folder} is not empty: remove it, or name another folder.")
    folder.mkdir(parents=True, exist_ok=True)
    if language == "typescript":
        _build_typescript(folder, api)
    else:
        _build_by_openapi_generator(language, folder, api)


def _build_typescript(folder: Path, api: Mapping[str, Any]) -> None:
    shutil.copytree(_SOURCES / "typescript", folder, dirs_exist_ok=True)
    description = json.loads((folder / "package.json").read_text())
    (folder / "package.json").write_text(json.dumps({**description, "version": version("convertd")}, indent=2) + "\n")
    (folder / "openapi.json").write_text(json.dumps(api))
    _run(folder, "npm", "install", "--silent", "--no-audit", "--no-fund")
    _run(folder, "npm", "run", "--silent", "generate")
    _run(folder, "npm", "run", "--silent", "build")


def _build_by_openapi_generator(language: str, folder: Path, api: Mapping[str, Any]) -> None:
    (folder / "openapi.json").write_text(json.dumps(simplified(api)))
    (folder / ".openapi-generator-ignore").write_text("\n".join(_UNUSED) + "\n")
    properties = ",".join(
        f"{name}={value.format(version=version('convertd'))}" for name, value in _PROPERTIES[language].items()
    )
    _run(
        folder,
        *(_GENERATOR, "generate", "--generator-name", language, "--input-spec", "openapi.json", "--output", "."),
        *("--global-property", "apiTests=false,modelTests=false", "--additional-properties", properties),
        *("--git-host", "convertd.example", "--git-user-id", "sdk", "--git-repo-id", language),  # the module of Go
    )
    shutil.copytree(_SOURCES / language, folder / _PLACES[language], dirs_exist_ok=True)


def simplified(schema: Any) -> Any:
    """The document without what openapi-generator writes code of that no compiler accepts.

    These are values of several plain types, and bounds on the number of files.
    """
    if isinstance(schema, list):
        return [simplified(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    left_out = set()
    alternatives = schema.get("anyOf", ())
    types = {one.get("type") for one in alternatives}
    if alternatives and "null" not in types and not any("$ref" in one for one in alternatives):
        left_out.add("anyOf")
        if len(types - {None}) == 1:
            schema = {"type": next(iter(types)), **schema}
    if schema.get("type") == "array" and schema.get("items", {}).get("format") == "binary":
        left_out |= {"minItems", "maxItems"}
    return {name: simplified(part) for name, part in schema.items() if name not in left_out}


def _run(folder: Path, program: str, *arguments: str) -> None:
    """Runs a program in the folder. Raises BuildError with its output if it fails or is not installed."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    found = shutil.which(program, path=path)
    if found is None:
        how = "pip install 'openapi-generator-cli<8', and Java" if program == _GENERATOR else "Node.js 20 or newer"
        raise BuildError(f"{program} is not installed: this package needs {how}.")
    done = subprocess.run([found, *arguments], cwd=folder, env={**os.environ, "PATH": path}, capture_output=True)
    if done.returncode:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise BuildError(f"{program} has failed:\n{output[-4000:]}")
