"""The structure of DOCX, read and written by Pandoc, and of ODT and EPUB, written by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from zipfile import BadZipFile, ZipFile

from engine import (
    BLOCKS,
    AnyConversion,
    Blocks,
    CorruptInput,
    FileFormat,
    Loss,
    blocks,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Comments, Landscape, Margin, Markup, PageSize, Password
from plugins._blocks import pandoc, pictures
from plugins._blocks.pandoc import PANDOC
from plugins._blocks.pandoc_reading import Reader
from plugins._office import documents, libreoffice
from plugins._office.documents import COST
from plugins._office.libreoffice import LIBREOFFICE
from plugins._text import zip_archives
from plugins._text.paper import MARGIN, POINTS, Paper, check_margin
from plugins.formats.ebooks import EPUB
from plugins.formats.office import CHECKS, DOC, DOCX, ODT, RTF, TO_DOCX

with lazy_imports():
    from plugins._blocks import docx_text, pandoc_results, pandoc_writing
    from plugins._office import rtf_text
    from plugins._pdf import passwords

MODULES = (
    "lxml.etree",
    "plugins._blocks.docx_text",
    "plugins._blocks.pandoc_results",
    "plugins._blocks.pandoc_writing",
    "plugins._blocks.docx_markup",
    "plugins._office.rtf_text",
    "plugins._text.markup",
    "encodings.cp437",
)
TEMPLATE = "documents"

_PAGE_SIZE = "a4"
_UNTITLED = "Untitled"
_UNKNOWN_LANGUAGE = "und"
_writes = partial(conversion, loss=Loss.DETAIL, cost=2, programs=pandoc.PROGRAMS, isolated=True)


def _declare_reader(format: FileFormat, prepare: Callable[[bytes], bytes] = bytes) -> AnyConversion:
    """The step that reads a format. LibreOffice makes DOCX of others, and of encrypted files."""

    @conversion(
        format,
        BLOCKS,
        loss=Loss.DETAIL,
        cost=2 if format is DOCX else COST,
        programs=(*pandoc.PROGRAMS, *libreoffice.PROGRAMS),
        isolated=True,
    )
    def read(
        data: bytes, *, password: Password | None = None, markup: Markup = "final", comments: Comments = False
    ) -> Blocks:
        """Headings, paragraphs, lists, tables, pictures and notes. Headers and footers of pages are left out."""
        source: Counter[str] = Counter()
        if format is not DOCX or documents.is_encrypted(data):
            source = rtf_text.words(data) if format is RTF else source
            data = documents.convert(prepare(data), format, TO_DOCX, password).data
        elif password:
            passwords.warn_unused()
        return _read(data, markup, comments=comments, source=source)

    return read


def _read(data: bytes, markup: Markup, *, comments: bool, source: Counter[str]) -> Blocks:
    """The structure of DOCX. `source` are the words that it must have apart from its own."""
    with zip_archives.open_checked(data, limit_markup=True) as archive:
        prepared = docx_text.prepare(archive, markup, comments=comments)
        reader = Reader(lambda path: _picture(archive, path), markup, comments)
        document = reader.read(pandoc.read(prepared.data, DOCX.name))
    blocks.warn_dropped_text(prepared.words | source, blocks.words(blocks.plain_texts(document.content)))
    known = prepared.properties
    return replace(
        known, content=document.content, title=document.title or known.title, authors=document.authors or known.authors
    )


def _picture(archive: ZipFile, path: str) -> tuple[bytes, str] | None:
    """The file of a picture, and its media type by its name. None for one that is elsewhere."""
    name = path.removeprefix("/") if path.startswith("/") else f"word/{path}"
    try:
        return archive.read(name), pictures.media_type(name)
    except KeyError:
        return None
    except BadZipFile as error:
        raise CorruptInput("An image in the document is damaged.") from error


def _declare_writer(format: FileFormat, writer: str, held: frozenset[str]) -> AnyConversion:
    """The step that writes a format with pictures of the media types `held`."""

    @_writes(BLOCKS, format)
    def write(document: Blocks) -> bytes:
        return _write(document, format, writer, held)

    return write


@_writes(BLOCKS, DOCX)
def write_docx(
    document: Blocks,
    *,
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
) -> bytes:
    """Text with styles. Its pages are those of a document that has some, otherwise A4."""
    sides = document.page_size
    if page_size or sides is None:
        sides = Paper.of(page_size or _PAGE_SIZE, False, 0).points
    is_wide = sides[0] > sides[1] if landscape is None else landscape
    short, long = sorted(sides)
    margins = document.margins
    if margin is not None or margins is None:
        margin = MARGIN if margin is None else margin
        check_margin(margin * POINTS, short)
        margins = (margin * POINTS,) * 4
    document = replace(document, page_size=(long, short) if is_wide else (short, long), margins=margins)
    return _write(document, DOCX, "docx", pictures.OF_OFFICE)


def _write(document: Blocks, format: FileFormat, writer: str, held: frozenset[str]) -> bytes:
    if format is EPUB:  # a book must have a title and a language
        heading = next((one for one in document.content if isinstance(one, blocks.Heading)), None)
        title = document.title or "".join(blocks.plain_texts([heading] if heading else [])) or _UNTITLED
        document = replace(document, title=title, language=document.language or _UNKNOWN_LANGUAGE)
    with TemporaryDirectory() as name:
        page_break = {"t": "RawBlock", "c": pandoc_results.PAGE_BREAKS[writer]}
        tree = pandoc_writing.Writer(Path(name), held, page_break).write(document)
        data = pandoc.write(tree, writer, Path(name))
    return pandoc_results.edit(data, writer, document, has_title=pandoc_writing.starts_with_title(document))


@hookimpl
def conversions() -> list[AnyConversion]:
    if not PANDOC.present:
        return []
    return [
        _declare_reader(DOCX),
        *(_declare_reader(*one) for one in ((DOC,), *CHECKS) if LIBREOFFICE.present),
        write_docx,
        _declare_writer(ODT, "odt", pictures.OF_OFFICE),
        _declare_writer(EPUB, "epub3", pictures.OF_BOOKS),
    ]
