"""The texts of scripts, which pages deliver with their translations.

A script marks a text as `_("text")`, or as `_n("one", "several", count)` if it depends on a count.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

from web.locale.languages import ENGLISH, Language

Message: TypeAlias = tuple[str, ...]
"""A text, and its plural if it has one."""

TEMPLATES = Path(__file__).parents[1] / "pages"
SCRIPTS = Path(__file__).parents[1] / "static"

_TEXT = r'("(?:[^"\\]|\\.)*")'
_MARKED = re.compile(rf"\b_\({_TEXT}|\b_n\({_TEXT}, {_TEXT}")
_IMPORT = re.compile(r'import [^"]*"\./(\w+)\.js";')
_LOADED = re.compile(r"static_url\('(\w+)\.js'\)")


@cache
def script_messages(script: str) -> tuple[Message, ...]:
    """The texts of a script. Reads from disk."""
    found = _MARKED.finditer(_read(script))
    return tuple(tuple(json.loads(text) for text in one.groups() if text) for one in found)


@cache
def messages_of_page(template: str, language: Language) -> Mapping[str, str | list[str]]:
    """The translations that the scripts of a template need; of a text with a plural, its forms. Reads from disk."""
    if language is ENGLISH:
        return MappingProxyType({})
    scripts = _with_imports(_LOADED.findall((TEMPLATES / template).read_text()))
    found = (message for script in sorted(scripts) for message in script_messages(script))
    return MappingProxyType({message[0]: _translation(message, language) for message in found})


def _translation(message: Message, language: Language) -> str | list[str]:
    if len(message) == 1:
        return language.translate(message[0])
    return [language.translate(message[0], message[1], count) for count in (1, 2)]


def _with_imports(scripts: Iterable[str]) -> set[str]:
    """The scripts, and those that they import."""

    def imported(script: str) -> Iterator[str]:
        yield script
        for found in map(_IMPORT.fullmatch, _read(script).splitlines()):
            if found:
                yield from imported(found[1])

    return {one for script in scripts for one in imported(script)}


def _read(script: str) -> str:
    return (SCRIPTS / f"{script}.js").read_text()
