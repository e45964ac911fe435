"""A result that claims to be PDF/A is one, as the validator of pikepdf finds, and a claim that is gone is told."""

from functools import cache
from io import BytesIO
from typing import Any

import pikepdf
import pytest
from pikepdf import pdfa

from engine import InvalidOption
from plugins._color import profiles
from plugins._pdf import archive_claims
from tests.support.results.conversions import ToolRun, codes, convert, run_tool
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import REGISTRY, Extra, document, field, opened, page_texts, saved
from tests.support.samples.rasters import photo
from tests.support.samples.tool_requests import tool_requests

_REQUESTS = tool_requests()
_TOOLS = [name for name, tool in REGISTRY.tools.items() if tool.target.name == "pdf" and name in _REQUESTS]
_READING = [name for name in _TOOLS if "pdf" in [source.name for source in REGISTRY.tools[name].sources]]

_BREAKING = (
    "pdf-arrange",
    "pdf-attach",
    "pdf-form",
    "pdf-merge",
    "pdf-number-pages",
    "pdf-overlay",
    "pdf-protect",
    "pdf-redact",
    "pdf-watermark",
)


@cache
def _archive(part: int) -> bytes:
    """Three pages with an image each, in PDF/A."""
    made = pikepdf.Pdf.new()
    for number in range(3):
        page = made.add_blank_page(page_size=(200 + number, 300))
        image = made.make_stream(
            photo((20, 20)).convert("RGB").tobytes(),
            pikepdf.Dictionary(Type=pikepdf.Name.XObject, Subtype=pikepdf.Name.Image, Width=20, Height=20),
        )
        image.ColorSpace, image.BitsPerComponent = pikepdf.Name.DeviceRGB, 8
        page.obj.Resources = pikepdf.Dictionary(XObject=pikepdf.Dictionary(I=image))
        page.obj.Contents = made.make_stream(b"q 100 0 0 100 20 20 cm /I Do Q")
    with made.open_outline() as outline:
        outline.root.append(pikepdf.OutlineItem("title", 0))
    file = BytesIO()
    pdfa.save(made, file, f"{part}b")
    return file.getvalue()


def _claim(data: bytes, password: str = "") -> int | None:
    with opened(data, password).open_metadata() as packet:
        part = packet.get("pdfaid:part")
    return None if part is None else int(part)


def _run(name: str, data: bytes) -> ToolRun:
    request = _REQUESTS[name]
    return run_tool(name, data, *request.inputs[1:], files=request.files, **request.options)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        (name, part)
        for name in _READING
        for part in (1, 2)
        if (name, part) not in (("pdf-ocr", 1), ("pdf-archive", 1)) and name != "pdf-form"  # which needs a form
    ],
)
def test_a_claim_is_true_or_gone(name: str, part: int) -> None:
    result = _run(name, _archive(part))

    for data in result.files.values():
        claim = _claim(data)
        assert claim in (None, part)
        assert ("archive_claim_removed" in result.codes) is (claim is None)
        found = [] if claim is None else pdfa.validate_written(BytesIO(data), f"{part}b").findings
        assert [one for one in found if name != "pdf-sign" or one.kind == "violation"] == []  # it knows no forms
    assert ("archive_claim_removed" in result.codes) is (name in _BREAKING)


@pytest.mark.parametrize("part", [1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"metadata": "all"}, {"quality": 50}, {"pages": "2"}, {"sanitize": True}, {"metadata": "none"}]
)
def test_a_claim_stays_where_a_conversion_keeps_it_true(options: dict[str, Any], part: int) -> None:
    result = convert(_archive(part), "pdf", **options)

    claim = None if options.get("metadata") == "none" else part
    assert (_claim(result.data), "archive_claim_removed" in codes(result)) == (claim, claim is None)
    assert claim is None or pdfa.validate_written(BytesIO(result.data), f"{part}b").findings == []


def test_files_that_claim_the_same_are_merged_as_such() -> None:
    same = run_tool("pdf-merge", _archive(2), _archive(2))
    different = run_tool("pdf-merge", _archive(2), _archive(1))

    assert pdfa.validate_written(BytesIO(same.data), "2b").findings == []
    assert (same.codes, _claim(same.data)) == (set(), 2)
    assert (different.codes, _claim(different.data)) == ({"archive_claim_removed"}, None)


def _drawing(content: bytes, **resources: Any) -> bytes:
    """A page with content and resources; the first stream of these is an indirect object."""
    made = pikepdf.Pdf.new()
    page = made.add_blank_page(page_size=(200, 300))
    page.obj.Resources = pikepdf.Dictionary(resources)
    page.obj.Contents = made.make_stream(content)
    return saved(made)


def _tiled(tile: bytes, **resources: Any) -> bytes:
    """A page that is filled with a shading and with tiles."""
    made = pikepdf.Pdf.new()
    page = made.add_blank_page(page_size=(200, 300))
    entries = pikepdf.Dictionary(BBox=[0, 0, 9, 9], XStep=9, YStep=9, PatternType=1, PaintType=1, TilingType=1)
    pattern = made.make_stream(tile, entries)
    pattern.Resources = pikepdf.Dictionary(resources)
    fade = pikepdf.Dictionary(FunctionType=2, Domain=[0, 1], C0=[1, 0, 0], C1=[0, 0, 1], N=1)
    shading = pikepdf.Dictionary(ShadingType=2, ColorSpace=pikepdf.Name.DeviceRGB, Coords=[0, 0, 200, 0], Function=fade)
    page.obj.Resources = pikepdf.Dictionary(Pattern={"/P": pattern}, Shading={"/S": shading})
    page.obj.Contents = made.make_stream(b"/S sh /Pattern cs /P scn 20 20 90 90 re f")
    return saved(made)


def _font(name: str, key: str = "/F") -> dict[str, Any]:
    font = pikepdf.Dictionary(Type=pikepdf.Name.Font, Subtype=pikepdf.Name.Type1, BaseFont=pikepdf.Name(name))
    return {"/Font": pikepdf.Dictionary({key: font})}


_WRITING = b"BT /F 12 Tf 20 100 Td (\x41\xe9 1) Tj ET"
_PLAIN = document("A", 2)
_ATTACHED = run_tool("pdf-attach", _PLAIN, files={"attachments": b"a,b"}).data


def _scripted(made: pikepdf.Pdf) -> None:
    made.Root.OpenAction = pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS="run()")


def _showing_attachments(made: pikepdf.Pdf) -> None:
    made.Root.PageMode = pikepdf.Name.UseAttachments


def _opening(place: int) -> Extra:
    """Lets viewers begin at the page with this index."""

    def edit(made: pikepdf.Pdf) -> None:
        made.Root.OpenAction = pikepdf.Array([made.pages[place].obj, pikepdf.Name.Fit])

    return edit


def _kept_by_a_program(made: pikepdf.Pdf) -> None:
    made.pages[0].obj.PieceInfo = pikepdf.Dictionary(A=pikepdf.Dictionary(Private=made.make_stream(b"x")))


@pytest.mark.parametrize(
    ("data", "standard", "lost"),
    [
        (_PLAIN, "pdfa-2b", set()),
        (_drawing(_WRITING, **_font("/Symbol")), "pdfa-2b", set()),
        (run_tool("pdf-protect", _PLAIN, owner_password="owner").data, "pdfa-2b", {"encryption_dropped"}),
        (document("A", 1, field(0, "name", pikepdf.String("Ann"))), "pdfa-2b", {"forms_dropped"}),
        (document("A", 1, _scripted), "pdfa-3b", {"active_content"}),
        (document("A", 2, _opening(1)), "pdfa-2b", {"active_content"}),
        (document("A", 2, _opening(0)), "pdfa-2b", set()),
        (document("A", 1, _kept_by_a_program), "pdfa-2b", {"metadata_dropped"}),
        (_drawing(b"BT /AA 12 Tf 20 100 Td (A) Tj ET", **_font("/Helvetica", "/AA")), "pdfa-2b", set()),
        (_ATTACHED, "pdfa-2b", {"attachments_dropped"}),
        (_ATTACHED, "pdfa-3b", set()),
        (document("A", 1, _showing_attachments), "pdfa-2b", set()),
    ],
)
def test_a_pdf_becomes_one_for_archives(data: bytes, standard: str, lost: set[str]) -> None:
    result = run_tool("pdf-archive", data, standard=standard)

    assert pdfa.validate_written(BytesIO(result.data), standard[-2:]).findings == []
    assert result.codes == lost | {"font_substituted"}
    assert page_texts(result.data)[0].startswith(page_texts(data)[0])
    with opened(result.data) as read:
        assert bool(read.attachments) is (data is _ATTACHED and standard == "pdfa-3b")


def test_inks_and_colors_keep_their_values() -> None:
    result = run_tool("pdf-archive", _drawing(b"1 0 0 0 k 0 0 50 50 re f 1 0 0 rg 50 50 50 50 re f"))

    report = pdfa.validate_written(BytesIO(result.data), "2b")
    assert (report.findings, report.output_intent, result.codes) == ([], "CMYK", set())


def test_the_output_intent_of_a_file_stays() -> None:
    profile = profiles.named("adobe-rgb").data
    with opened(_drawing(b"1 0 0 rg 0 0 50 50 re f")) as made:
        intent = pikepdf.Dictionary(Type=pikepdf.Name.OutputIntent, S=pikepdf.Name.GTS_PDFA1)
        intent.OutputConditionIdentifier = "Adobe RGB"
        intent.DestOutputProfile = made.make_stream(profile, N=3)
        made.Root.OutputIntents = [intent]
        result = run_tool("pdf-archive", saved(made))

    with opened(result.data) as archive:
        assert archive_claims.profiles_of(archive) == [profile]
    assert _claim(result.data) == 2


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (_tiled(b"1 0 0 rg 0 0 5 5 re f"), ""),
        (_tiled(b"BT /F 9 Tf (x) Tj ET", **_font("/Helvetica")), ""),
        (_tiled(b"BT /F 9 Tf (x) Tj ET", **_font("/Other")), "not embedded"),
        (_drawing(_WRITING, **_font("/Other")), "not embedded"),
    ],
)
def test_patterns_are_validated_too(data: bytes, problem: str) -> None:
    """The validator of pikepdf does not look into them."""
    if not problem:
        assert _claim(run_tool("pdf-archive", data).data) == 2
        return
    with pytest.raises(InvalidOption, match=problem) as caught:
        run_tool("pdf-archive", data)
    assert (caught.value.reason, caught.value.param) == ("unsupported", "standard")


@pytest.mark.parametrize("source", ["png", "jpeg", "svg", "html", "csv"])
def test_results_of_conversions_conform(source: str) -> None:
    result = convert(sample(source), "pdf", pdf_standard="pdfa-2b")

    assert pdfa.validate_written(BytesIO(result.data), "2b").findings == []
    assert codes(result) - codes(convert(sample(source), "pdf")) <= {"metadata_dropped"}


def test_a_pdf_for_archives_has_no_password() -> None:
    with pytest.raises(InvalidOption) as caught:
        convert(_PLAIN, "pdf", pdf_standard="pdfa-2b", user_password="secret")
    assert (caught.value.reason, caught.value.param) == ("exclusive", "pdf_standard")


def test_what_the_standard_removes_is_told_once() -> None:
    claiming = run_tool("pdf-archive", document("A", 1)).data
    with opened(claiming) as made:
        _scripted(made)
        result = convert(saved(made), "pdf", metadata="none", pdf_standard="pdfa-2b")
        asked = convert(saved(made), "pdf", sanitize=True, pdf_standard="pdfa-2b")

    assert (codes(result), codes(asked)) == ({"active_content"}, set())
    (warned,) = result.outcome.warnings
    assert ("sanitize" in warned.message, _claim(result.data)) == (False, 2)
