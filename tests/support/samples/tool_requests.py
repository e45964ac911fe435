"""A request for each PDF tool: its files and options."""

from dataclasses import dataclass, field
from functools import cache

from engine.options import OptionValue
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document, outline


@dataclass(frozen=True)
class ToolRequest:
    """The files and the options. `files` are the further files by name; `count` is the number of files of the result.

    `same_pages`: each page of the result looks like the page of the only file.
    """

    inputs: tuple[bytes, ...]
    options: dict[str, OptionValue] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    count: int = 1
    same_pages: bool = False


@cache
def tool_requests() -> dict[str, ToolRequest]:
    """The requests by the ids of the tools."""
    report = document("A", 3, outline(("One", 0, True, []), ("Two", 1, True, [])))
    one = (report,)
    return {
        "pdf-delete-pages": ToolRequest(one, {"pages": "2"}),
        "pdf-extract-pages": ToolRequest(one, {"pages": "1-"}, same_pages=True),
        "pdf-merge": ToolRequest((report, document("B", 1))),
        "pdf-metadata": ToolRequest(one, {"title": "A title"}, same_pages=True),
        "pdf-number-pages": ToolRequest(one),
        "pdf-protect": ToolRequest(one, {"owner_password": "owner", "allow": "print"}, same_pages=True),
        "pdf-rotate": ToolRequest(one, {"angle": 90}),
        "pdf-split": ToolRequest(one, {"bookmarks": True}, count=2),
        "pdf-unlock": ToolRequest(one, same_pages=True),
        "pdf-watermark": ToolRequest(one, {"angle": 0}, {"stamp": sample("png")}),
    }
