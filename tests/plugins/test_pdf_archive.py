"""A result that claims to be PDF/A is one, as the validator of pikepdf finds, and a claim that is gone is told."""

from functools import cache
from io import BytesIO
from typing import Any

import pikepdf
import pytest
from pikepdf import pdfa

from tests.support.results.conversions import ToolRun, codes, convert, run_tool
from tests.support.samples.pdf_documents import REGISTRY, opened
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
        if (name, part) != ("pdf-ocr", 1) and name != "pdf-form"  # which needs a form
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
