"""Files of Office: their detection, and their conversion by LibreOffice."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BytesIO
from zipfile import BadZipFile

from engine import (
    DOCUMENT,
    AnyConversion,
    Content,
    CorruptInput,
    FidelityWarning,
    FileFormat,
    Signature,
    Sniffer,
    UnknownFormat,
    any_of,
    conversion,
    lazy_imports,
)
from engine.option_types import Pages, Password
from plugins._office import compound_file, libreoffice
from plugins._office.libreoffice import PROGRAMS, Filter, Written
from plugins._pdf.pages import reading
from plugins._pdf.pages.reading import read_pages
from plugins._text import zip_archives
from plugins._text.paper import SIZES, check_margin

with lazy_imports():
    import msoffcrypto
    import olefile

    from engine.mupdf import pymupdf
    from plugins._fonts import choice
    from plugins._office import formulas, references, slide_encryption
    from plugins._pdf import passwords

MODULES = (
    "plugins._fonts.choice",
    "plugins._office.formulas",
    "plugins._office.references",
    "encodings.cp437",
    "olefile",
    *reading.MODULES,
)
TEMPLATE = "documents"
COST = 10.0
_SHORTEST_SIDE = 210.0  # mm, of most pages
_CONTENT_TYPES = "[Content_Types].xml"
_ENCRYPTED_PACKAGE = "EncryptedPackage"
_MANIFEST = "META-INF/manifest.xml"
_FILE_PASSWORD = 0x2F  # a record of Excel
_PASSWORD_OF_EXCEL = "VelvetSweatshop"  # of files that open without asking for one
_HEAD = 4096
_MAX_FONTS = 10
_FONT_NAME = re.compile(rb"/FontName/[A-Z]{6}\+([^/\s]+)")
_SAME_METRICS = frozenset(  # by fontconfig; LibreOffice knows those of Arial, Calibri, Cambria and others itself
    {
        *(("Helvetica", "Nimbus Sans"), ("Nimbus Sans L", "Nimbus Sans"), ("Bitstream Vera Sans", "DejaVu Sans")),
        *(("Times", "Nimbus Roman"), ("Nimbus Roman No9 L", "Nimbus Roman"), ("Bitstream Vera Serif", "DejaVu Serif")),
        *(("Courier", "Nimbus Mono PS"), ("Nimbus Mono L", "Nimbus Mono PS")),
        ("Bitstream Vera Sans Mono", "DejaVu Sans Mono"),
    }
)
_TAG = re.compile(rb"<[^<>]*>")


def sniff_package(main: str) -> Sniffer:
    """A sniffer for Office Open XML with a main part such as `word/document.xml`.

    It scores lower for encrypted files and truncated ones, which do not show their main part.
    """
    folder, name = main.removesuffix(".xml").split("/")
    part = re.compile(rf"{folder}/{name}\d*\.xml")

    def sniff(content: Content) -> int:
        names = zip_archives.names(content)
        if _CONTENT_TYPES not in names:
            return 0
        return len(main) if any(map(part.fullmatch, names)) else int(not zip_archives.is_complete(content))

    return any_of(
        Signature((0, zip_archives.SIGNATURE), then=sniff),
        Signature((0, compound_file.SIGNATURE), then=_sniff_encrypted),
    )


def _sniff_encrypted(content: Content) -> int:
    return len(compound_file.SIGNATURE) if _ENCRYPTED_PACKAGE in compound_file.sniffed(content).streams else 0


def sniff_opendocument(kind: str) -> Sniffer:
    """A sniffer for OpenDocument of a kind such as `text`, and for its templates."""
    media_type = f"application/vnd.oasis.opendocument.{kind}".encode()

    def sniff(content: Content) -> int:
        found = zip_archives.mimetype(content)
        return len(found) if found in (media_type, media_type + b"-template") else 0

    return Signature((0, zip_archives.SIGNATURE), then=sniff)


def sniff_streams(*names: str, beside: Sequence[str] = ()) -> Sniffer:
    """A sniffer for compound files with one of the streams, and all of those `beside` it.

    The score is 1 for files without a directory.
    """

    def sniff(content: Content) -> int:
        file = compound_file.sniffed(content)
        found = [len(name) * 2 for name in names if file.streams.issuperset((name, *beside))]
        return max(found, default=int(not file.readable))

    return Signature((0, compound_file.SIGNATURE), then=sniff)


def reader(format: FileFormat, filter_: Filter, prepare: Callable[[bytes], bytes] = bytes) -> AnyConversion:
    """The step that opens a file as the pages that LibreOffice prints. `prepare` changes the file before."""

    @conversion(format, DOCUMENT, cost=COST, programs=PROGRAMS, isolated=True)
    def read(data: bytes, *, password: Password | None = None, pages: Pages | None = None) -> pymupdf.Document:
        written = convert(prepare(data), format, filter_, password)
        return read_pages(written.data, pages=pages)

    return read


def paper_of(page_size: str | None, landscape: bool | None, margin: float | None) -> str:
    """What the options change of the pages, for a Filter. Raises InvalidOption if the margin leaves no space."""
    if (page_size, landscape, margin) == (None, None, None):
        return ""
    sides = SIZES[page_size] if page_size else ()
    if margin is not None:
        check_margin(margin, min(sides, default=_SHORTEST_SIDE))
    lengths = ["-" if length is None else f"{100 * length:.0f}" for length in (*(sides or (None, None)), margin)]
    return " ".join([*lengths[:2], "-" if landscape is None else str(int(landscape)), lengths[2]])


def writers(
    sources: Sequence[FileFormat],
    targets: Sequence[tuple[FileFormat, Filter]],
    prepare: Callable[[bytes], bytes] = bytes,
) -> list[AnyConversion]:
    """The steps from each of the sources to each of the targets that is another format."""
    return [
        _writer(source, target, filter_, prepare)
        for source in sources
        for target, filter_ in targets
        if source is not target
    ]


def _writer(
    source: FileFormat, target: FileFormat, filter_: Filter, prepare: Callable[[bytes], bytes]
) -> AnyConversion:
    @conversion(source, target, cost=COST, programs=PROGRAMS, isolated=True, terminal=True)
    def write(data: bytes, *, password: Password | None = None) -> bytes:
        written = convert(prepare(data), source, filter_, password)
        return written.data

    return write


def convert(data: bytes, format: FileFormat, filter_: Filter, password: str | None) -> Written:
    """Converts a file, and warns of fonts that were replaced. Raises UnknownFormat for an encrypted one."""
    if is_encrypted(data):
        data = _decrypt(data, password)
    elif password:
        passwords.warn_unused()
    if not format.text_extensions:  # text has no references
        data = references.remove(data)
    if format.name == "xlsx" and data[:4] == zip_archives.SIGNATURE:
        data = formulas.keep_values(data)
    archive = zip_archives.open_checked(data, limit_markup=True) if data[:4] == zip_archives.SIGNATURE else None
    parts = [data] if archive is None else [archive.read(part) for part in archive.namelist() if _is_text(part)]
    chooser = choice.FontChooser(in_color=False)
    if filter_.extension == "pdf" and (archive or format.text_extensions) and not is_encrypted(data):
        _choose_fonts(parts, chooser)
    try:
        fonts = [font.data for font in chooser.builtin.values()]
        written = libreoffice.convert(data, format.extensions[0], filter_, password, fonts=fonts)
    except CorruptInput as error:
        if not is_encrypted(data):
            raise
        problem = "a password is required" if password is None else "the password is incorrect"
        raise UnknownFormat(f"The file is encrypted; {problem}.", reason="file_encrypted") from error
    if filter_.extension == "pdf" and written.substituted:
        _warn_fonts(written, parts)
    chooser.warn()
    return written


def _choose_fonts(parts: Sequence[bytes], chooser: choice.FontChooser) -> None:
    """Chooses the fonts for the text of a file, but for private characters, which are those of fonts such as Symbol."""
    for char in sorted(set().union(*(html.unescape(_TAG.sub(b"", part).decode(errors="ignore")) for part in parts))):
        if unicodedata.category(char) != "Co":
            chooser.runs(char)


def _is_text(part: str) -> bool:
    return part.endswith((".xml", ".rels"))


def _warn_fonts(written: Written, parts: Sequence[bytes]) -> None:
    """Issues a warning for fonts that the file names, and whose substitutes are in the result.

    LibreOffice asks for others, too, such as fonts of menus, and those of styles that no text has.
    """
    used = {name.decode(errors="replace") for name in _FONT_NAME.findall(written.data)}
    named = {
        name: found
        for name, found in written.substituted.items()
        if (name, found) not in _SAME_METRICS
        and any(one.startswith(found.replace(" ", "")) for one in used)
        and any(name.encode(encoding) in part for encoding in ("utf-8", "utf-16-le") for part in parts)
    }
    if named:
        pairs = ", ".join(f"{name} by {found}" for name, found in [*named.items()][:_MAX_FONTS])
        FidelityWarning.issue("font_substituted", f"Fonts that are not installed were replaced: {pairs}.")


def is_encrypted(data: bytes) -> bool:
    """Whether the file needs a password to be read."""
    if data[:4] == zip_archives.SIGNATURE:
        try:
            return b"encryption-data" in zip_archives.open_checked(data, limit_markup=True).read(_MANIFEST)
        except (KeyError, BadZipFile):
            return False
    if data[:8] != compound_file.SIGNATURE:
        return False
    with suppress(OSError, IndexError), olefile.OleFileIO(BytesIO(data)) as file:  # a damaged file raises them
        if file.exists(_ENCRYPTED_PACKAGE):
            return True
        if file.exists(slide_encryption.CURRENT_USER):
            return slide_encryption.is_encrypted(file)
        if file.exists("WordDocument"):
            return bool(file.openstream("WordDocument").read(_HEAD)[11] & 1)  # the flag fEncrypted
        name = "Workbook" if file.exists("Workbook") else "Book"
        return _has_record(file.openstream(name).read(_HEAD), _FILE_PASSWORD)
    return False


def _decrypt(data: bytes, password: str | None) -> bytes:
    """The file without its encryption; the same object if LibreOffice decrypts it, or the password is another one."""
    if data[:8] != compound_file.SIGNATURE:
        return data
    for key in filter(None, (password, _PASSWORD_OF_EXCEL)):
        decrypted = BytesIO()
        try:
            file = msoffcrypto.OfficeFile(BytesIO(data))
            if file.format == "ppt97":
                return slide_encryption.decrypt(data, key)
            file.load_key(password=key, verify_password=True)
            file.decrypt(decrypted)
        except Exception:  # what its steps happen to raise; LibreOffice tries ways of encryption that it does not know
            continue
        return decrypted.getvalue()
    return data


def _has_record(records: bytes, kind: int) -> bool:
    offset = 0
    while offset + 4 <= len(records):
        if int.from_bytes(records[offset : offset + 2], "little") == kind:
            return True
        offset += 4 + int.from_bytes(records[offset + 2 : offset + 4], "little")
    return False
