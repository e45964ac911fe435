"""Sheets of XLSX, XLS and ODS as tables, and tables as XLSX."""

from __future__ import annotations

from io import BytesIO
from typing import Annotated, Literal, TypeAlias
from zipfile import BadZipFile, ZipFile

from pydantic import Field

from engine import (
    BLOCKS,
    AnyConversion,
    Blocks,
    CorruptInput,
    FileFormat,
    Loss,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Comments, Password, Sheet
from plugins._office import documents, libreoffice
from plugins._office.libreoffice import LIBREOFFICE, Filter
from plugins._text import zip_archives
from plugins.formats.office import ODS, XLS, XLSX

with lazy_imports():
    from plugins._blocks import sheets
    from plugins._office import references
    from plugins._pdf import passwords

MODULES = ("plugins._blocks.sheets", "encodings.utf_16_le", *documents.MODULES)
TEMPLATE = documents.TEMPLATE

Values: TypeAlias = Annotated[
    Literal["shown", "raw"],
    Field(description="Cells of sheets: as a sheet shows them, with dates as in ISO 8601, or numbers with all digits."),
]
_TO_ODS = Filter("calc8", "ods")


def _declare_reader(format: FileFormat) -> AnyConversion:
    """The step that reads a format. LibreOffice makes ODS of others, and of encrypted files."""

    @conversion(
        format,
        BLOCKS,
        loss=Loss.DETAIL,
        cost=2 if format is ODS else documents.COST,
        programs=libreoffice.PROGRAMS,
        isolated=True,
    )
    def read(
        data: bytes,
        *,
        password: Password | None = None,
        values: Values = "shown",
        sheet: Sheet | None = None,
        comments: Comments = False,
    ) -> Blocks:
        """A table for each sheet that is not hidden, with all of its cells."""
        if format is not ODS or documents.is_encrypted(data):
            data = documents.convert(data, format, _TO_ODS, password).data
        else:
            data = references.remove(data)
            zip_archives.open_checked(data, limit_markup=True).close()
            if password:
                passwords.warn_unused()
        chosen = int(sheet) if sheet and sheet.isdecimal() and int(sheet) > 0 else sheet
        try:
            with ZipFile(BytesIO(data)) as archive, archive.open("content.xml") as content:
                return sheets.read(content, sheet=chosen, raw=values == "raw", comments=comments)
        except (BadZipFile, KeyError) as error:
            raise CorruptInput("The spreadsheet is damaged.") from error

    return read


@conversion(BLOCKS, XLSX, loss=Loss.DETAIL)
def write(document: Blocks) -> bytes:
    """A sheet for each table. Texts that are numbers become numbers; codes such as 007 stay text."""
    return sheets.write(document)


@hookimpl
def conversions() -> list[AnyConversion]:
    if not LIBREOFFICE.present:
        return [_declare_reader(ODS), write]
    return [*map(_declare_reader, (XLSX, XLS, ODS)), write]
