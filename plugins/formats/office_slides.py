"""The structure of PPTX, and of PPT and ODP, of which LibreOffice makes PPTX."""

from __future__ import annotations

from engine import BLOCKS, AnyConversion, Blocks, FileFormat, Loss, conversion, hookimpl, lazy_imports
from engine.option_types import Notes, Password
from plugins._office import documents, libreoffice
from plugins._office.libreoffice import LIBREOFFICE
from plugins._text import zip_archives
from plugins.formats.office import ODP, PPT, PPTX, TO_PPTX

with lazy_imports():
    from plugins._blocks import slides
    from plugins._office import references
    from plugins._pdf import passwords

MODULES = ("plugins._blocks.slides", *documents.MODULES)
TEMPLATE = documents.TEMPLATE


def _declare_reader(format: FileFormat) -> AnyConversion:
    """The step that reads a format. LibreOffice makes PPTX of others, and of encrypted files."""

    @conversion(
        format,
        BLOCKS,
        loss=Loss.DETAIL,
        cost=2 if format is PPTX else documents.COST,
        programs=libreoffice.PROGRAMS,
        isolated=True,
    )
    def read(data: bytes, *, password: Password | None = None, notes: Notes = True) -> Blocks:
        """A heading and the content of each slide that is not hidden. Headers and footers are left out."""
        if format is not PPTX or documents.is_encrypted(data):
            data = documents.convert(data, format, TO_PPTX, password).data
        else:
            data = references.remove(data)
            if password:
                passwords.warn_unused()
        zip_archives.open_checked(data, limit_markup=True).close()
        return slides.read(data, notes=notes)

    return read


@hookimpl
def conversions() -> list[AnyConversion]:
    return [_declare_reader(format) for format in (PPTX, PPT, ODP) if format is PPTX or LIBREOFFICE.present]
