"""Formulas of XLSX with functions that LibreOffice does not know: their cells keep the values that Excel has stored."""

from __future__ import annotations

import re
import zipfile
from collections import Counter
from io import BytesIO

from engine import FidelityWarning
from plugins._office.libreoffice import VERSION
from plugins._text import zip_archives

_SINCE_24_8 = "FILTER LET RANDARRAY SEQUENCE SORT SORTBY UNIQUE XLOOKUP XMATCH"
_SINCE_25_8 = "CHOOSECOLS CHOOSEROWS DROP EXPAND HSTACK VSTACK TAKE TEXTAFTER TEXTBEFORE TEXTSPLIT TOCOL TOROW WRAPCOLS"
_UNKNOWN = (
    "ARRAYTOTEXT BYCOL BYROW FIELDVALUE GROUPBY IMAGE ISOMITTED LAMBDA MAKEARRAY MAP PERCENTOF PIVOTBY REDUCE "
    "REGEXEXTRACT REGEXREPLACE REGEXTEST SCAN STOCKHISTORY TRANSLATE TRIMRANGE VALUETOTEXT WRAPROWS"
)
_SHEET = re.compile(r"xl/worksheets/[^/]+\.xml")
_FORMULA = re.compile(rb"<((?:\w+:)?f)\b([^<>]*)(?:/>|>([^<]*)</\1>)")
_SHARED = re.compile(rb"""\bsi=["'](\d+)["']""")
_MAX_NAMES = 5


def keep_values(data: bytes) -> bytes:
    """The package of a workbook without these formulas; the same object if it has none. Issues a warning."""
    archive = zip_archives.open_checked(data, limit_markup=True)
    found: Counter[str] = Counter()
    sheets = {name: archive.read(name) for name in archive.namelist() if _SHEET.fullmatch(name)}
    changed = {name: _without_formulas(content, found) for name, content in sheets.items()}
    if not found:
        return data
    names = ", ".join(name for name, _ in found.most_common(_MAX_NAMES))
    message = f"{found.total()} formulas became their values, because LibreOffice does not know the functions: {names}."
    FidelityWarning.issue("functions_unknown", message)
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as package:
        for entry in archive.infolist():
            package.writestr(entry, changed[entry.filename] if entry.filename in changed else archive.read(entry))
    return made.getvalue()


def _without_formulas(sheet: bytes, found: Counter[str]) -> bytes:
    """The sheet without the formulas, whose functions are counted."""
    unknown = _pattern()
    if not unknown.search(sheet):
        return sheet
    shared: set[bytes] = set()

    def replaced(formula: re.Match[bytes]) -> bytes:
        number = _SHARED.search(formula[2])
        function = unknown.search(formula[3] or b"")
        if function is not None:
            found[function[1].decode()] += 1
            shared.update(number.groups() if number else ())
            return b""
        # The other cells of a shared formula refer to the first one by its number.
        return b"" if number and number[1] in shared and not formula[3] else formula[0]

    return _FORMULA.sub(replaced, sheet)


def _pattern() -> re.Pattern[bytes]:
    """A function that the installed LibreOffice does not know, before its arguments."""
    names = _UNKNOWN.split()
    names += _SINCE_24_8.split() if VERSION < (24, 8) else []
    names += _SINCE_25_8.split() if VERSION < (25, 8) else []
    return re.compile(rb"(?<![\w.])(?:_xlfn\.)?(?:_xlws\.)?(%s)\(" % "|".join(names).encode())
