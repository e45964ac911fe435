"""A request for each PDF tool: its files and options."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pikepdf import String

from engine.options import OptionValue
from tests.support.results.conversions import run_tool
from tests.support.samples.certificates import pkcs12_file
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document, field, link, outline
from tests.support.samples.scans import scanned_pdf


@dataclass(frozen=True)
class ToolRequest:
    """The files and the options. `files` are the additional files by name; `count` is the number of results.

    `same_pages`: each page of the result looks like the page of the only file.
    """

    inputs: tuple[bytes, ...]
    options: Mapping[str, OptionValue] = dataclasses.field(default_factory=dict)
    files: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    count: int = 1
    same_pages: bool = False


_ARRANGEMENT = [{"file": 1}, {"file": 0, "page": 3, "rotate": 90}, {"blank": "a5"}, {"file": 0}]


@cache
def tool_requests() -> dict[str, ToolRequest]:
    """The requests by the ids of the tools."""
    report = document("A", 3, outline(("One", 0, True, []), ("Two", 1, True, [])))
    one = (report,)
    form = document("A", 2, field(0, "name", String("Ann")), link(0, to=1))
    images = run_tool("pdf-from-images", sample("jpeg"), sample("png")).data
    return {
        "pdf-archive": ToolRequest((images,), same_pages=True),
        "pdf-arrange": ToolRequest((report, sample("png")), {"pages": _ARRANGEMENT}),
        "pdf-attach": ToolRequest(one, {}, {"attachments": b"a,b"}, same_pages=True),
        "pdf-auto-rotate": ToolRequest(one, same_pages=True),
        "pdf-compress": ToolRequest(one, {"quality": 60}, same_pages=True),
        "pdf-crop": ToolRequest(one, {"box": "0,0,150,200"}),
        "pdf-delete-pages": ToolRequest(one, {"pages": "2"}),
        "pdf-extract-pages": ToolRequest(one, {"pages": "1-"}, same_pages=True),
        "pdf-extract-attachments": ToolRequest((run_tool("pdf-attach", report, files={"attachments": b"a,b"}).data,)),
        "pdf-extract-images": ToolRequest((images,), count=2),
        "pdf-form": ToolRequest((form,), {"fields": {"name": "Bob"}}),
        "pdf-info": ToolRequest((form,)),
        "pdf-flatten": ToolRequest((form,), same_pages=True),
        "pdf-from-images": ToolRequest((sample("jpeg"), sample("png"), sample("gif")), {"page_size": "a4"}),
        "pdf-merge": ToolRequest((report, document("B", 1)), {"outline": True}),
        "pdf-metadata": ToolRequest(one, {"title": "A title"}, same_pages=True),
        "pdf-nup": ToolRequest(one),
        "pdf-number-pages": ToolRequest(one),
        "pdf-ocr": ToolRequest((scanned_pdf(),)),
        "pdf-overlay": ToolRequest(one, files={"overlay": document("B", 1)}),
        "pdf-pipe": ToolRequest(
            one, {"stages": [{"tool": "pdf-rotate", "angle": 90}, {"tool": "pdf-split", "every": 1}]}, count=3
        ),
        "pdf-protect": ToolRequest(one, {"owner_password": "owner", "allow": "print"}, same_pages=True),
        "pdf-redact": ToolRequest(one, {"text": ["page 2"]}),
        "pdf-resize-pages": ToolRequest(one, {"page_size": "a4"}),
        "pdf-rotate": ToolRequest(one, {"angle": 90}),
        "pdf-sign": ToolRequest(one, {"reason": "I agree"}, {"certificate": pkcs12_file()}, same_pages=True),
        "pdf-split": ToolRequest(one, {"bookmarks": True}, count=2),
        "pdf-unlock": ToolRequest(one, same_pages=True),
        "pdf-verify": ToolRequest(one),
        "pdf-watermark": ToolRequest(one, {"angle": 0}, {"stamp": sample("png")}),
    }
