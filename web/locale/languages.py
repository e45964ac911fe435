"""The languages of pages and emails: their translations, and their forms of numbers, sizes and dates."""

import gettext
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias

DOMAIN = "convertd"
"""The name of the catalogues."""

FOLDER = Path(__file__).parent
"""The folder of the catalogues, which are at `LANGUAGE/LC_MESSAGES`."""

Translate: TypeAlias = Callable[[str], str]
"""Translates a text."""

_COMMA = str.maketrans(",.", ".,")


@dataclass(frozen=True, eq=False)
class Language:
    """A language. `code` is its tag, `name` what its speakers call it.

    `separators` translates those of English numbers; the formats, of which that of days has no year, are of strftime.
    """

    code: str
    name: str
    date_format: str
    day_format: str
    separators: Mapping[int, int | str]

    @cached_property
    def catalogue(self) -> gettext.NullTranslations:
        """The translations; of English, none. Reads from disk."""
        return gettext.translation(DOMAIN, FOLDER, [self.code], fallback=self is ENGLISH)

    def translate(self, text: str, plural: str | None = None, count: int = 1) -> str:
        """The translation of a text, or of the one that fits the count."""
        if plural is None:
            return self.catalogue.gettext(text)
        return self.catalogue.ngettext(text, plural, count)

    def number(self, value: float, form: str = ",") -> str:
        """A number in the form of a format specification."""
        return f"{value:{form}}".translate(self.separators)

    def size(self, value: int) -> str:
        """A number of bytes with a unit, for example "1.5 kB"."""
        power = min(max(value.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
        return self.translate(_UNITS[power]).format(number=self.number(value / 1024**power, ".1f" if power else ".0f"))

    def format_date(self, value: int | date) -> str:
        """A date, also of a Unix time in UTC."""
        return f"{self._moment(value):{self.date_format}}"

    def format_time(self, value: int, *, seconds: bool = False) -> str:
        """The date and the minute of a Unix time in UTC, or its second."""
        return f"{self._moment(value):{self.date_format} {'%H:%M:%S' if seconds else '%H:%M'}}"

    def format_day(self, value: date) -> str:
        """The day of a year."""
        return f"{value:{self.day_format}}"

    @staticmethod
    def _moment(value: int | date) -> date:
        return datetime.fromtimestamp(value, UTC) if isinstance(value, int) else value


def gettext_noop(text: str) -> str:
    """Marks a text that is translated where it is shown."""
    return text


_UNITS = (
    *(gettext_noop("{number} B"), gettext_noop("{number} kB"), gettext_noop("{number} MB")),
    *(gettext_noop("{number} GB"), gettext_noop("{number} TB")),
)
ENGLISH = Language("en", "English", "%Y-%m-%d", "%d %b", {})
LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        one.code: one
        for one in (
            ENGLISH,
            Language("de", "Deutsch", "%d.%m.%Y", "%d.%m.", _COMMA),
            Language("fr", "Français", "%d/%m/%Y", "%d/%m", str.maketrans(",.", "\u202f,")),
            Language("es", "Español", "%d/%m/%Y", "%d/%m", _COMMA),
            Language("pt", "Português", "%d/%m/%Y", "%d/%m", _COMMA),
            Language("ja", "日本語", "%Y/%m/%d", "%m/%d", {}),
        )
    }
)
"""The languages by their codes."""
