"""The pages of the documentation, and their entries in the contents and in the search."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

from web.api.operations import Tag
from web.docs.option_groups import MORE, OPTION_GROUPS

_VOID = {"br", "hr", "img", "input", "link", "meta", "wbr"}
_ENTRY_TITLES = {"section": "h2", "details": "h3", "tr": "th"}
_LINES = {"td", "th", "li", "p", "h2", "h3"}  # their texts are separate words
_NOT_SEARCHED = {"pre", "svg"}


@dataclass(frozen=True)
class DocsPage:
    """A page of the documentation, with the tags of the operations that it describes.

    `name` is the name of its template and the path below /docs; the first page has the path /docs.
    """

    name: str
    title: str
    description: str
    tags: tuple[Tag, ...] = ()

    @property
    def path(self) -> str:
        return "/docs" if self is DOCS_PAGES[0] else f"/docs/{self.name}"

    @property
    def template(self) -> str:
        return f"docs/{self.name.replace('/', '_')}.html"

    @property
    def is_part(self) -> bool:
        """Whether the page is a part of the one before it."""
        return "/" in self.name


DOCS_PAGES: tuple[DocsPage, ...] = (
    DocsPage("quickstart", "Quickstart", "The first conversion, and recipes for what people do most."),
    DocsPage("convert", "Convert", "Convert a file in one request, and the formats.", ("Conversion",)),
    DocsPage("formats", "Formats", "What is read and written of each format."),
    DocsPage("options", "Options", "How options are sent, their order, and where to find each."),
    *(DocsPage(f"options/{group.name}", group.title, group.summary) for group in (*OPTION_GROUPS, MORE)),
    DocsPage("outputs", "Multiple outputs", "Multiple outputs, the smallest format, names and presets.", ("Presets",)),
    DocsPage("files", "Files", "Upload files once, fetch them from URLs, and download results.", ("Files",)),
    DocsPage("batch", "Batch", "Convert many files together.", ("Batches",)),
    DocsPage("tools", "Tools", "Tools that change whole files, such as PDFs.", ("PDF", "Tools")),
    DocsPage("jobs", "Jobs and webhooks", "Run conversions in the background and get notified.", ("Jobs", "Webhooks")),
    DocsPage("errors", "Errors", "Every error code, and what to do."),
    DocsPage("warnings", "Warnings", "What a result does not keep."),
    DocsPage("limits", "Limits", "Sizes, times and rates, and how to retry."),
    DocsPage("sdks", "SDKs, command, agents", "The command line, clients for programs, and tools for agents."),
    DocsPage(
        "account",
        "Account and service",
        "API keys, usage, credits and the catalogue.",
        ("Account", "Credits", "Registration", "Catalogue", "Service"),
    ),
    DocsPage("changelog", "Changelog", "What is new in each version."),
)
"""All pages, in the order of the contents."""


@dataclass
class Entry:
    """An element with an id: a section, an operation, an option or a code. `text` is without nested ones."""

    id: str
    title: str = ""
    text: str = ""
    in_contents: bool = False
    words: str = ""


def read_entries(html: str) -> list[Entry]:
    """The entries of a page, in its order. The attribute data-words has further words that find an entry."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    for entry in reader.entries:
        entry.title, entry.text = (re.sub(r"\s+", " ", part).strip() for part in (entry.title, entry.text))
    return reader.entries


class _Reader(HTMLParser):
    """Collects entries. Text belongs to the innermost one; the first heading in it is its title."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: list[Entry] = []
        self._open: list[tuple[str, Entry | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _VOID:
            return
        if tag in _LINES:
            self.handle_data(" ")
        given = dict(attrs)
        entry = None
        if "id" in given and tag in _ENTRY_TITLES:
            entry = Entry(given["id"] or "", in_contents=tag != "tr", words=given.get("data-words") or "")
            self.entries.append(entry)
        self._open.append((tag, entry))

    def handle_endtag(self, tag: str) -> None:
        if tag in _LINES:
            self.handle_data(" ")
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        tags = [tag for tag, _ in self._open]
        place = max((place for place, (_, entry) in enumerate(self._open) if entry is not None), default=None)
        if place is None or _NOT_SEARCHED & {*tags}:
            return
        tag, entry = self._open[place]
        assert entry is not None
        if _ENTRY_TITLES[tag] in tags[place:] and not entry.text.strip():
            entry.title += data
        else:
            entry.text += data
