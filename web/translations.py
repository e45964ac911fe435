"""Writes the catalogues of translations: with all texts of pages, scripts and emails, and without others.

python -m web.translations
"""

import ast
import json
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import get_args

from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from config.pricing import PlanChanges
from engine.registry import Registry, load_registry
from storage.errors import InvalidKey
from storage.tables.jobs import Status
from web.api.errors import (
    CheckoutNotConfigured,
    CheckoutUnavailable,
    EmailNotConfigured,
    KeyNotVerified,
    RegistrationClosed,
    SignInUnavailable,
)
from web.docs.option_groups import MORE, OPTION_GROUPS, label_of_option
from web.docs.suggestions import target_groups
from web.http.handler import BaseHandler
from web.locale.languages import DOMAIN, ENGLISH, FOLDER, LANGUAGES
from web.locale.messages import SCRIPTS, TEMPLATES, Message, script_messages
from web.site.tools import ToolPage

_ENGLISH_TEMPLATES = ("docs_layout.html",)
_TEXT = r'("(?:[^"\\]|\\.)*")'
_IN_TEMPLATES = re.compile(rf"\b_\({_TEXT}(?:, {_TEXT})?")
_IN_SOURCE = ("translate", "gettext_noop")
_ERRORS_OF_PAGES = ("NotFound", "InvalidParameter", "SignInRefused")
_CONSTANT_ERRORS = (
    *(InvalidKey, KeyNotVerified, EmailNotConfigured, RegistrationClosed),
    *(SignInUnavailable, CheckoutUnavailable, CheckoutNotConfigured),
)
_WIDTH = 120  # characters


def messages(registry: Registry) -> dict[Message, set[str]]:
    """All texts, with the names of the files that have them. Reads from disk."""
    found: dict[Message, set[str]] = {}
    for name, message in (*_marked_messages(), *_declared_messages(registry)):
        found.setdefault(message, set()).add(name)
    return found


def catalogue_path(code: str) -> Path:
    """The catalogue of a language, for translators."""
    return FOLDER / code / "LC_MESSAGES" / f"{DOMAIN}.po"


def read_catalogue(code: str) -> Catalog:
    """The translations of a language. Reads from disk."""
    with catalogue_path(code).open("rb") as file:
        return read_po(file, locale=code, domain=DOMAIN)


def compiled(catalogue: Catalog) -> bytes:
    """The catalogue as programs read it."""
    file = BytesIO()
    write_mo(file, catalogue)
    return file.getvalue()


def _marked_messages() -> Iterator[tuple[str, Message]]:
    for template in sorted(TEMPLATES.glob("*.html")):
        if template.name not in _ENGLISH_TEMPLATES:
            for match in _IN_TEMPLATES.finditer(template.read_text()):
                yield template.name, tuple(json.loads(text) for text in match.groups() if text)
    for script in sorted(SCRIPTS.glob("*.js")):
        yield from ((script.name, message) for message in script_messages(script.stem))
    for source in sorted(FOLDER.parent.rglob("*.py")):
        yield from ((source.name, message) for message in _messages_of_source(source))


def _messages_of_source(path: Path) -> Iterator[Message]:
    functions = (*_IN_SOURCE, *(_ERRORS_OF_PAGES if path.parent.name == "site" else ()))
    source = path.read_text()
    if not any(f"{function}(" in source for function in functions):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in functions:
            constants = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            if texts := tuple(text for text in constants if isinstance(text, str)):
                yield texts


def _declared_messages(registry: Registry) -> Iterator[tuple[str, Message]]:
    """The texts of declarations: of tools and options, states of jobs, and errors that pages show."""
    for text in (BaseHandler.absence, ToolPage.absence, *(error.message for error in _CONSTANT_ERRORS)):
        yield "errors", (text,)
    for group in (*OPTION_GROUPS, MORE):
        yield from (("options", (text,)) for text in (group.title, *group.labels.values()))
    for tool in registry.tools.values():
        names = (*registry.tool_options(tool.name), *tool.files)
        texts = (tool.title, tool.summary, tool.words, tool.reads, *map(label_of_option, names))
        yield from ((tool.name, (text,)) for text in texts if text)
    yield from (("targets", (title,)) for title in target_groups(registry))
    yield from (("plans", (name.replace("_", " ").capitalize(),)) for name in PlanChanges.model_fields)
    yield from (("jobs", (status,)) for status in get_args(Status))


def update(registry: Registry) -> None:
    """Updates the catalogues of all languages. Writes to disk."""
    current = messages(registry)
    for code in LANGUAGES.keys() - {ENGLISH.code}:
        known = read_catalogue(code)
        catalogue = Catalog(locale=code, domain=DOMAIN, header_comment=known.header_comment, fuzzy=False)
        catalogue.mime_headers = known.mime_headers
        for message, names in current.items():
            translated = known.get(message[0])
            catalogue.add(
                message if len(message) > 1 else message[0],
                translated.string if translated else "",
                locations=[(name, 0) for name in sorted(names)],
            )
        with catalogue_path(code).open("wb") as file:
            write_po(file, catalogue, width=_WIDTH, sort_output=True, include_lineno=False)
        catalogue_path(code).with_suffix(".mo").write_bytes(compiled(catalogue))


if __name__ == "__main__":
    update(load_registry())
