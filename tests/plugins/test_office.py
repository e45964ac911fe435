"""Files of Office: how they are recognized, what LibreOffice makes of them, and what it is not let do."""

import re
import struct
from base64 import b64decode
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from warnings import catch_warnings
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

import numpy as np
import pikepdf
import pypdfium2
import pytest
from msoffcrypto.format.ooxml import OOXMLFile

from engine import ConversionError, CorruptInput, InvalidOption, OptionValue, TooLarge, UnknownFormat
from engine.executor import LocalExecutor, Task
from engine.registry import load_registry
from plugins._office import limits, references
from plugins._office.libreoffice import LIBREOFFICE
from plugins._text.zip_archives import open_checked
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import codes, convert
from tests.support.samples import metafiles, office_files, outside_references
from tests.support.samples.books import zipped
from tests.support.samples.compound_files import compound_file
from tests.support.samples.generated import COLORS, SIZE, quadrants
from tests.support.samples.office_files import FONT, TEXT, docx, odt, opendocument
from tests.support.samples.scripts import MISSING

pytestmark = pytest.mark.skipif(not LIBREOFFICE.present, reason="LibreOffice is not installed")

_REGISTRY = load_registry()
_LINK = (
    '<Relationships><Relationship Id="x" Type="http://a.example/hyperlink" Target="http://a.example/" '
    'TargetMode="External"/></Relationships>'
)
_OUTSIDE = _LINK.replace("/hyperlink", "/image")
_LINKED = (
    '<w:document xmlns:w="urn:w" xmlns:v="urn:schemas-microsoft-com:vml" xmlns:r="urn:office/relationships">'
    '<w:hyperlink r:id="x" href="http://a.example/"></w:hyperlink></w:document>'
)
_TABLE = "Größe;Anzahl\r\n1,5;2\r\n".encode("cp1252")

_DECLARED = "".join(f'<!ENTITY a{number} "{f"&a{number - 1};" * 12}">' for number in range(1, 9))
_ENTITIES = f'<!DOCTYPE a [<!ENTITY a0 "laugh">{_DECLARED}]><a>&a8;</a>'


def _text(pdf: bytes) -> str:
    """The text of the first page, as PDFium reads it."""
    found: str = pypdfium2.PdfDocument(pdf)[0].get_textpage().get_text_bounded()
    return found.strip()


def _packed_again(data: bytes) -> bytes:
    """The archive as programs for archives write it: in the order of the names, and all compressed."""
    archive = open_checked(data)
    file = BytesIO()
    with ZipFile(file, "w") as made:
        for name in sorted(archive.namelist()):
            made.writestr(ZipInfo(name), archive.read(name), ZIP_DEFLATED)
    return file.getvalue()


def _identified(data: bytes, filename: str = "file") -> str | None:
    try:
        return _REGISTRY.identify_content(data, filename).name
    except UnknownFormat:
        return None


def test_a_missing_font_is_told() -> None:
    result = convert(docx(font=FONT), "pdf")

    assert _text(result.data) == TEXT
    (warned,) = result.outcome.warnings
    assert warned.code == "font_substituted"
    assert f"{FONT} by " in warned.message


def test_scripts_and_emoji_are_drawn_in_the_fonts_of_mupdf() -> None:
    result = convert(docx(f"ᱥᱟᱱ 🎉 {MISSING}", font="Liberation Sans"), "pdf")

    with pikepdf.open(BytesIO(result.data)) as made:
        names = {str(font.BaseFont).partition("+")[2] for font in made.pages[0].Resources.Font.values()}
    assert {"NotoEmoji", "NotoSansOlChikiRegular"} <= names
    assert sorted(warned.message for warned in result.outcome.warnings) == [
        "Emoji are drawn without colors.",
        "No font has these characters: U+0378.",
    ]


@pytest.mark.parametrize("name", ["emf", "wmf"])
def test_metafiles_are_drawn_in_their_size(name: str) -> None:
    result = convert(getattr(metafiles, name)(), "pdf")

    (page,) = pypdfium2.PdfDocument(result.data)
    assert page.get_size() == pytest.approx(SIZE, abs=0.1)
    drawn = np.asarray(page.render().to_pil().convert("RGB"), int)[: SIZE[1], : SIZE[0]]
    difference = np.abs(drawn - np.asarray(quadrants(), int)).max(axis=2)
    assert np.percentile(difference, 95) <= 1  # edges can be blurred


@pytest.mark.parametrize("mode", [pytest.param(1, marks=pytest.mark.long), 8])
def test_a_wmf_without_a_header_of_its_size_has_that_of_its_window_in_pixels(mode: int) -> None:
    result = convert(metafiles.wmf(mode)[22:], "pdf")

    (page,) = pypdfium2.PdfDocument(result.data)
    assert page.get_size() == pytest.approx([side * 72 / 96 for side in SIZE], abs=0.1)
    image = page.render().to_pil().convert("RGB")
    width, height = image.size
    quarters = [(width * x // 4, height * y // 4) for y in (1, 3) for x in (1, 3)]
    colors = np.array([image.getpixel(point) for point in quarters], int)
    np.testing.assert_allclose(colors, COLORS, atol=2)


def test_the_size_of_a_wmf_can_count_the_header_before_it() -> None:
    data = metafiles.wmf()
    larger = struct.pack("<I", int.from_bytes(data[28:32], "little") + 11)

    assert _text(convert(data[:28] + larger + data[32:], "pdf").data) == ""


@pytest.mark.parametrize(
    "data",
    [
        *(make()[:end] for make in (metafiles.emf, metafiles.wmf) for end in (50, 100, -1)),
        metafiles.emf()[:24] + bytes(16) + metafiles.emf()[40:],
        metafiles.wmf()[:6] + bytes(8) + metafiles.wmf()[14:],
        metafiles.wmf()[22:-1],
        metafiles.wmf(3)[22:],  # in hundredths of a millimeter
    ],
)
def test_damaged_metafiles_are_refused_before_libreoffice_starts(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plugins._office.libreoffice.PROGRAMS", ("/nowhere",))

    with pytest.raises(CorruptInput):
        convert(data, "pdf")


@pytest.mark.asyncio(loop_scope="session")
async def test_a_macro_does_not_run(executor: LocalExecutor, tmp_path: Path) -> None:
    """The macro would replace the text. In the sandbox, where the other tests are not."""
    source, result = tmp_path / "source.odt", tmp_path / "result.pdf"
    source.write_bytes(office_files.odt_with_macro())
    plan = _REGISTRY.plan([_REGISTRY.identify(source)], "pdf")

    done = await run_files(executor, FileJob(Task.of(plan), [source], result))

    assert plan.source.name == "odt"
    assert done.outcome.warnings == ()
    assert _text(result.read_bytes()) == TEXT


def test_references_to_what_is_outside_are_removed_and_named(tmp_path: Path) -> None:
    """Also those of SVGs in SVGs, in text of 16 bits, in entities, and with escaped letters. Others stay."""
    for name, data in outside_references.files(tmp_path, 21).items():
        if name.endswith(".csv"):
            continue
        with catch_warnings(record=True, action="always") as warned:
            cleaned = references.remove(data)
        named = "".join(str(one.message) for one in warned)
        stays = name in outside_references.NOT_FOLLOWED
        assert (cleaned == data) == stays, name
        assert ("resource_not_loaded" in named) == (not stays and name not in outside_references.TEMPLATES), name
        has_no_effect = name.endswith(".rtf") or "as_hyperlink" in name
        assert stays or has_no_effect or not _mentions(cleaned, tmp_path.name), name


def _mentions(data: bytes, text: str) -> bool:
    if not data.startswith(b"PK"):
        return text.encode() in data
    file = open_checked(data)
    parts = [file.read(name).decode("utf-8", "ignore") for name in file.namelist() if name[-12:] != "manifest.xml"]
    nested = [b64decode(one).decode() for part in parts for one in re.findall(r"base64,([\w+/=]+)", part)]
    return any(text in part for part in parts + nested)


@pytest.mark.parametrize(
    "data",
    [
        docx(),
        odt(),
        docx(parts={"word/_rels/document.xml.rels": _LINK, "word/document.xml": _LINKED}),
        docx(parts={"word/document.xml": _LINKED.replace("w:hyperlink", "v:shape", 2)}),
        office_files.opendocument(
            "text", '<text:a xlink:href="http://a.example/"/><draw:object xlink:href="./Object 1"/>'
        ),
        office_files.opendocument("text", "", {"Object 1/content.xml": '<chart xlink:href=".."/>'}),
        rb"{\rtf1 {\field{\*\fldinst PAGE}{\fldrslt 1}}{\field{\*\fldinst PAGE}{\fldrslt 1}}}",
        rb"{\rtf1 {\field{\*\fldinst {\b HYPER}{LINK \\l \'22a\'22}}{\fldrslt a}}{\*\fldinst PAGE\\* a}}",
        compound_file({"WordDocument": b""}),
    ],
)
def test_files_without_such_references_are_the_same_bytes(data: bytes) -> None:
    with catch_warnings(action="error"):
        assert references.remove(data) == data


@pytest.mark.parametrize("name", ["picture.rtf", "nested.odt", "fill_as_hyperlink.pptx"])
def test_files_of_the_system_are_not_on_the_pages(name: str, tmp_path: Path) -> None:
    """LibreOffice would read each of them, whatever its settings. In this process, without Landlock."""
    outside_references.write_secrets(tmp_path)

    result = convert(outside_references.files(tmp_path, 21)[name], "pdf")

    assert not outside_references.shown(result.data)
    assert codes(result) == {"resource_not_loaded"}


def test_fields_of_old_word_files_are_emptied() -> None:
    command = 'INCLUDEPICTURE "http://a.example/b.png"'
    for encoding in ("latin-1", "utf-16-le"):
        data = compound_file({"WordDocument": b""}) + f"\x13 {command}\x14".encode(encoding)
        with pytest.warns(UserWarning, match="INCLUDEPICTURE"):
            cleaned = references.remove(data)
        assert len(cleaned) == len(data)
        assert command[:7].encode(encoding) not in cleaned


def test_names_in_utf_8_stay_when_a_package_is_written_anew() -> None:
    """Programs write them so without saying it."""
    name = "word/media/größe.png"
    plain = docx(parts={"word/media/grAABBe.png": b"a", "word/_rels/document.xml.rels": _OUTSIDE})
    unsaid = plain.replace(b"word/media/grAABBe.png", name.encode())
    with pytest.warns(UserWarning, match="http://a.example/"):
        cleaned = references.remove(unsaid)

    assert name in open_checked(cleaned).namelist()


def test_a_table_keeps_its_cells_whatever_separates_them() -> None:
    data = convert(_TABLE, "xlsx", "table.csv").data

    assert _identified(data) == "xlsx"
    cells = open_checked(data).read("xl/worksheets/sheet1.xml").decode()
    assert all(f">{text}<" in cells for text in ("Größe", "Anzahl", "1,5"))
    assert "<v>2</v>" in cells


@pytest.mark.parametrize(
    "table",
    [
        "sep=;\r\nA title, which is no row\r\n\r\nName;Price;Count\r\nApples;1,50;3\r\nPears;2,00;4\r\n",
        pytest.param(
            "A title, which is no row\n\nName;Price;Count\nApples;1,50;3\nPears;2,00;4\n", marks=pytest.mark.long
        ),
        pytest.param(
            "A title, which is no row\n\nName|Price|Count\nApples|1,50|3\nPears|2,00|4\n", marks=pytest.mark.long
        ),
    ],
)
def test_the_separator_is_declared_or_the_one_of_most_lines(table: str) -> None:
    lines = convert(table.encode(), "csv", "a.csv").data.decode().splitlines()
    assert lines[-2:] == ['Apples,"1,50",3', 'Pears,"2,00",4']
    assert len(lines) == 5


def test_codes_dates_and_formulas_of_a_table_stay() -> None:
    table = "007,1E5,2024-03-04,03/04/24,=1+1,+5,5%,TRUE,12345678901234567890\n-1.5,0.1,,a,1,2,3,4,123456789012345\n"

    assert convert(convert(table.encode(), "xlsx", "a.csv").data, "csv").data.decode() == table


_NUMBERS = """<office:automatic-styles>
<number:percentage-style style:name="N1"><number:number number:decimal-places="0"/><number:text>%</number:text>
</number:percentage-style><style:style style:name="c1" style:family="table-cell" style:data-style-name="N1"/>
<style:style style:name="w1" style:family="table-column"><style:table-column-properties style:column-width="4mm"/>
</style:style></office:automatic-styles><office:body><office:spreadsheet><table:table table:name="One"><table:table-row>
<table:table-cell/></table:table-row></table:table><table:table table:name="Two">
<table:table-column table:style-name="w1"/><table:table-row>
<table:table-cell table:style-name="c1" office:value-type="percentage" office:value="0.123456"><text:p>12%</text:p>
</table:table-cell>
<table:table-cell office:value-type="string"><text:p>a;b</text:p></table:table-cell></table:table-row>
<table:table-row><table:table-cell office:value-type="float" office:value="98765432.25"/></table:table-row>
</table:table></office:spreadsheet></office:body>"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"values": "raw", "separator": "semicolon", "bom": True}, '\ufeff0.123456;"a;b"\n98765432.25;\n'),
        ({}, "12%,a;b\n98765432.25,\n"),
    ],
)
def test_a_table_has_the_values_sheet_and_separator_requested(options: dict[str, OptionValue], expected: str) -> None:
    result = convert(opendocument("spreadsheet", _NUMBERS), "csv", sheet="2", **options)

    assert result.data.decode() == expected
    assert not codes(result)


def test_a_sheet_that_is_missing_is_refused() -> None:
    with pytest.raises(InvalidOption, match="no sheet 3; its last one is 2") as raised:
        convert(opendocument("spreadsheet", _NUMBERS), "csv", sheet="3")

    assert raised.value.param == "sheet"


def test_formulas_are_drawn() -> None:
    numbers = "".join(f"<m:{part}><m:r><m:t>{text}</m:t></m:r></m:{part}>" for part, text in (("num", 12), ("den", 34)))
    document = (
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main" '
        'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"><w:body><w:p><m:oMath><m:f>'
        f"{numbers}</m:f></m:oMath></w:p></w:body></w:document>"
    )

    assert _text(convert(docx(parts={"word/document.xml": document}), "pdf").data).split() == ["12", "34"]


def test_fonts_of_the_same_widths_are_no_loss() -> None:
    result = convert(docx(font="Calibri"), "pdf")

    with pikepdf.open(BytesIO(result.data)) as document:
        (font,) = document.pages[0].Resources.Font.values()
        assert str(font.BaseFont).endswith("+Carlito")
    assert not codes(result)


@pytest.mark.parametrize(
    ("data", "options", "size"),
    [
        (docx(), {"page_size": "a5"}, (420, 595)),
        (docx(), {"page_size": "letter", "landscape": True, "margin": 0}, (792, 612)),
        (_TABLE, {"page_size": "a6"}, (298, 420)),
    ],
)
def test_pages_have_the_size_requested(data: bytes, options: dict[str, Any], size: tuple[int, int]) -> None:
    page = pypdfium2.PdfDocument(convert(data, "pdf", "table.csv", **options).data)[0]

    assert tuple(map(round, page.get_size())) == size
    left = page.get_textpage().get_charbox(0)[0]
    assert left < 10 if options.get("margin") == 0 else left > 20


def test_a_margin_that_leaves_no_space_is_refused() -> None:
    with pytest.raises(InvalidOption, match="margin leaves no space"):
        convert(docx(), "pdf", margin=80, page_size="a5")


def test_numbers_in_narrow_columns_are_shown() -> None:
    text = convert(opendocument("spreadsheet", _NUMBERS), "txt").data.decode()

    assert "98765432.25" in text
    assert "#" not in text


def test_an_encrypted_file_needs_its_password() -> None:
    with pytest.raises(UnknownFormat, match="a password is required") as raised:
        convert(office_files.encrypted_odt(), "pdf")

    assert raised.value.reason == "file_encrypted"


def test_a_password_opens_all_of_a_file(tmp_path: Path) -> None:
    plain = BytesIO(outside_references.files(tmp_path, 21)["linked_server.docx"])
    with ZipFile(plain, "a") as archive:
        archive.writestr("word/padding", bytes(5000))  # the library damages shorter files
    OOXMLFile(plain).encrypt("secret", encrypted := BytesIO())
    file = encrypted.getvalue()

    assert codes(convert(file, "pdf", "file.docx", password="secret")) == {"resource_not_loaded"}
    with pytest.raises(UnknownFormat, match="the password is incorrect"):
        convert(file, "pdf", "file.docx", password="Secret")


_SLOW_IN_RTF = (
    (rb"\cellx1", 5_001),
    (rb"\row", 10_001),
    (rb"\par ", 100_001),
    (rb"\red1;", 4_001),
    (rb"\sbasedon0", 20_001),
    (rb"{\*\bkmkstart a}", 5_001),
)


def _rtf(code: bytes, count: int) -> bytes:
    return rb"{\rtf1 " + count * code + b"}"


@pytest.mark.parametrize(
    ("make", "error", "reason"),
    [
        (lambda: docx()[:-40], CorruptInput, "corrupt_input"),
        (lambda: rb"{\rtf1 text", CorruptInput, "corrupt_input"),
        (lambda: rb"{\rtf1 {\b text}", CorruptInput, "corrupt_input"),
        (lambda: compound_file({"Workbook": bytes(4608)})[:-300], CorruptInput, "corrupt_input"),
        (lambda: rb"{\rtf1\bin2000000000 x}", CorruptInput, "corrupt_input"),
        (lambda: rb"{\rtf1\bin%032d x}" % 2_000_000_000, CorruptInput, "corrupt_input"),
        (lambda: opendocument("text", "", {"content.xml": ""}), CorruptInput, "corrupt_input"),
        (lambda: opendocument("text", "", {"content.xml": _ENTITIES}), CorruptInput, "corrupt_input"),
        (lambda: odt("<text:span>" * 300 + "</text:span>" * 300), CorruptInput, "corrupt_input"),
        (lambda: odt("<text:s/>" * 3_000_000), TooLarge, "elements"),
        (lambda: odt("<text:note/>" * 5_001), TooLarge, "elements"),
        *((partial(_rtf, code, count), TooLarge, "elements") for code, count in _SLOW_IN_RTF),
        (lambda: zipped({"[Content_Types].xml": "", "word/document.xml": " " * (65 << 20)}), TooLarge, "bytes"),
        (lambda: docx(parts={"word/media/1.png": bytes(520 << 20)}), TooLarge, "bytes"),
    ],
    ids=[
        *("truncated", "truncated_rtf", "open_group", "truncated_xls", "wrong_length", "wrong_length_after_zeros"),
        *("no_content", "entities", "nested", "tags", "notes"),
        *("cells", "rows", "paragraphs", "colors", "styles", "bookmarks", "markup_bomb", "picture_bomb"),
    ],
)
def test_damaged_and_hostile_files_are_refused_before_libreoffice_starts(
    make: Callable[[], bytes], error: type[ConversionError], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = make()
    monkeypatch.setattr("plugins._office.libreoffice.PROGRAMS", ("/nowhere",))

    with pytest.raises(error) as raised:
        convert(data, "pdf")

    assert raised.value.reason == reason
    assert not isinstance(raised.value.__cause__, FileNotFoundError)


def test_many_tables_are_no_large_table() -> None:
    limits.check_rtf(rb"{\rtf1 " + (rb"\trowd\cellx1 a\cell\row" * 100 + rb"\pard x\par ") * 101 + b"}")


def test_a_damaged_spreadsheet_is_not_read_as_text() -> None:
    with pytest.raises(CorruptInput, match="cannot read"):
        convert(compound_file({"Workbook": b""}, loops=True), "pdf")


def test_a_nul_after_the_last_group_has_no_effect() -> None:
    assert _text(convert(rb"{\rtf1 a \{ b}" + b"\0", "pdf").data) == "a { b"


@pytest.mark.parametrize(
    ("data", "filename", "expected"),
    [
        (docx(), "", "docx"),
        (docx()[:-40], "", "docx"),
        (docx()[:300], "a.docm", "docx"),
        (zipped({"[Content_Types].xml": "", "xl/workbook.xml": ""}), "", "xlsx"),
        (zipped({"[Content_Types].xml": "", "ppt/presentation.xml": ""}), "", "pptx"),
        (zipped({"[Content_Types].xml": "", "visio/document.xml": ""}), "", "vsdx"),
        (zipped({"word/document.xml": ""}), "a.docx", None),
        (zipped({"[Content_Types].xml": "", "backup/word/document.xml": ""}), "a.docx", None),
        (zipped({"a.txt": "PK"}), "a.docx", None),
        (odt(), "", "odt"),
        (odt()[:90], "", "odt"),
        (_packed_again(odt()), "", "odt"),
        (zipped({"mimetype": "application/vnd.oasis.opendocument.spreadsheet-template"}), "", "ods"),
        (zipped({"mimetype": "application/vnd.other"}), "a.odt", None),
        (compound_file({"WordDocument": b"", "1Table": b""}), "", "doc"),
        (compound_file({"Workbook": b""}), "", "xls"),
        (compound_file({"Other": b"", "PowerPoint Document": b""}), "", "ppt"),
        (compound_file({"VisioDocument": b""}), "", "vsd"),
        (compound_file({"Contents": b"", "\3Internal": b""}), "", "pub"),
        (compound_file({"Contents": b""}), "a.pub", None),
        (compound_file({"__properties_version1.0": b""}), "a.doc", "msg"),
        (compound_file({"EncryptionInfo": b"", "EncryptedPackage": b""}), "a.pptx", "pptx"),
        (compound_file({"WordDocument": b""}, loops=True), "", "doc"),  # the directory follows itself
        (compound_file({"WordDocument": b""})[:600], "a.xls", "xls"),
        (compound_file({"WordDocument": b""})[:8], "a.xls", "xls"),
        (rb"{\rtf1 text}", "", "rtf"),
        (_TABLE, "table.csv", "csv"),
        (_TABLE, "table", "txt"),
    ],
)
def test_content_tells_the_format(data: bytes, filename: str, expected: str | None) -> None:
    assert _identified(data, filename) == expected


@pytest.mark.parametrize(
    "source",
    [
        *("docx", "doc", "odt", "rtf", "xlsx", "xls", "ods", "csv", "pptx", "ppt", "odp"),
        *("odg", "vsd", "vsdx", "vdx", "dxf", "pub"),
    ],
)
def test_each_format_becomes_pages_images_and_text(source: str) -> None:
    targets = {target.name for target in _REGISTRY.targets(_REGISTRY.formats[source])}

    assert targets >= {"pdf", "png", "jpeg", "webp", "svg", "txt", "html"}
    assert (source in targets) == (source == "csv")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("odt", {"docx", "xlsx", "ods", "csv", "pptx"}),
        ("xls", {"xlsx", "ods", "csv", "docx", "odt", "pptx"}),
        ("csv", {"xlsx", "ods", "csv", "docx", "odt", "pptx"}),
        ("ppt", {"pptx", "odp", "xlsx", "ods", "csv", "docx", "odt"}),
    ],
)
def test_files_of_office_are_written_from_others(source: str, expected: set[str]) -> None:
    targets = {target.name for target in _REGISTRY.targets(_REGISTRY.formats[source])}

    assert targets & {"docx", "doc", "odt", "rtf", "xlsx", "xls", "ods", "csv", "pptx", "ppt", "odp"} == expected
