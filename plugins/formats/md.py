"""Markdown, read as HTML by markdown-it."""

from __future__ import annotations

import html as markup
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import MappingProxyType

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    EncodedFile,
    FileFormat,
    Loss,
    any_of,
    blocks,
    conversion,
    decode_text,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Encoding, Images, Landscape, Margin, Pages, PageSize, Renderer, ResultStandard
from plugins.formats import html
from plugins.formats.html import HTML, PANGO

with lazy_imports():
    import markdown_it
    from mdit_py_plugins import deflist, dollarmath, gfm

    from engine.mupdf import pymupdf
    from plugins._blocks import markdown_writer, pictures, writing
    from plugins._text import formulas, highlighting, web_pages

_MODULES = (
    "markdown_it",
    "mdit_py_plugins.gfm",
    "mdit_py_plugins.deflist",
    "plugins._blocks.markdown_writer",
    "plugins._text.formulas",
    "plugins._text.highlighting",
    "encodings.raw_unicode_escape",
)
MODULES = (*_MODULES, *html.MODULES)
TEMPLATE = html.TEMPLATE
_STYLE = """
body { font-family: sans-serif; line-height: 1.4; overflow-wrap: break-word }
pre, code { font-family: monospace; background: #f4f4f4; font-size: 0.9em }
pre { padding: 0.6em; white-space: pre-wrap; overflow-wrap: anywhere }
table { border-collapse: collapse } th, td { border: 1px solid #bbb; padding: 0.2em 0.5em }
blockquote { border-left: 3px solid #bbb; margin-left: 0; padding-left: 1em }
img { max-width: 100% }
.contains-task-list { list-style: none } .task-list-item-checkbox { float: left; margin: 0.2em 0.4em 0 -1.2em }
.markdown-alert { border-left: 3px solid #06c; padding-left: 1em } .markdown-alert-title { font-weight: bold }
"""
_FIELD = re.compile(r"^(\w+):[ \t]*(.*(?:\n(?:[ \t]+|-).*)*)$", re.MULTILINE)
_ENTRY = re.compile(r"^\s*-\s+", re.MULTILINE)
_META = MappingProxyType(
    {
        "author": "author",
        "authors": "author",
        "subject": "description",
        "description": "description",
        "keywords": "keywords",
        "date": "date",
    }
)
"""Fields of front matter, and what they are in HTML."""

MD = FileFormat(
    "md",
    media_type="text/markdown",
    extensions=("md", "markdown"),
    sniff=any_of(),  # nothing in Markdown marks it
    text_extensions=("md", "markdown"),
    paged=True,
)


@conversion(MD, HTML, loss=Loss.DETAIL, isolated=True)
def to_html(data: bytes, *, encoding: Encoding | None = None) -> bytes:
    """The Markdown of GitHub as HTML: with tables, tasks, alerts and footnotes. Lists of definitions are added.

    Formulas become MathML, and code has colors. The page has the title, the authors and the language that stand before
    the text.
    """
    text = decode_text(data, encoding)
    parser = markdown_it.MarkdownIt("commonmark", {"highlight": _highlight}).use(deflist.deflist_plugin)
    parser.use(gfm.gfm_plugin, front_matter=True)
    parser.use(
        dollarmath.dollarmath_plugin,
        allow_space=False,
        allow_digits=False,
        double_inline=True,
        renderer=_write_formula,
    )
    environment: dict[str, object] = {}
    tokens = parser.parse(text, environment)
    _warn_excess(text, tokens)
    known = _front_matter(tokens[0].content) if tokens and tokens[0].type == "front_matter" else {}
    body = parser.renderer.render(tokens, parser.options, environment)
    style = _STYLE + highlighting.STYLE if "<pre>" in body else _STYLE
    head = [f'<meta charset="utf-8"><title>{markup.escape(" ".join(known.pop("title", [])))}</title>']
    language = "".join(f' lang="{markup.escape(one)}"' for one in known.pop("lang", known.pop("language", []))[:1])
    head += (
        f'<meta name="{_META[name]}" content="{markup.escape(value)}">'
        for name, values in known.items()
        if name in _META
        for value in values
    )
    page = f"<html{language}><head>{''.join(head)}<style>{style}</style></head><body>\n{body}</body></html>"
    return f"<!DOCTYPE html>\n{page}\n".encode()


def _warn_excess(text: str, tokens: Iterable[markdown_it.token.Token]) -> None:
    """Issues a warning for cells beyond the columns of their table, which are not read."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    source = Counter[str]()
    result = Counter[str]()
    is_body = False
    for token in tokens:
        if token.type == "tbody_open" and token.map:
            is_body = True
            source += blocks.words(lines[slice(*token.map)])
        elif token.type == "tbody_close":
            is_body = False
        elif is_body and token.type == "inline":
            result += blocks.words([token.content])
    blocks.warn_dropped_text(source, result)


def _front_matter(text: str) -> dict[str, list[str]]:
    """The values of the fields, which are texts or lists of texts in YAML."""
    return {name.lower(): [*filter(None, _values(value.strip()))] for name, value in _FIELD.findall(text)}


def _values(text: str) -> list[str]:
    with suppress(ValueError):
        if text[:1] in ('"', "["):
            found = json.loads(text)  # what is quoted so is JSON, too
            return [found] if isinstance(found, str) else [str(one) for one in found]
    parts = text.strip("[]").split(",") if text.startswith("[") else _ENTRY.split(text)
    return [part.strip().strip("\"'") for part in parts]


def _write_formula(tex: str, options: Mapping[str, bool]) -> str:
    return formulas.to_mathml(tex.strip(), display=options["display_mode"])


def _highlight(code: str, language: str, _attributes: str) -> str:
    return highlighting.highlighted(code, language)


@conversion(MD, DOCUMENT, cost=9, isolated=True, chosen_by=("renderer=print", "pdf_standard=pdfua-1"))
def read(
    data: bytes,
    *,
    renderer: Renderer = "auto",
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
    pages: Pages | None = None,
    encoding: Encoding | None = None,
    pdf_standard: ResultStandard = "none",
) -> pymupdf.Document:
    """Pages of A4 with margins of 20 mm, unless the options have others."""
    html.check_renderer(renderer)
    markup = to_html.run(data, encoding=encoding)
    return web_pages.lay_out(markup, page_size, landscape, margin, pages, standard=pdf_standard)


@conversion(BLOCKS, MD, loss=Loss.DETAIL)
def write(document: Blocks, *, images: Images = "embed") -> bytes | EncodedFile:
    """The Markdown of GitHub, after front matter with the title, the authors and the language."""
    shown = writing.Pictures(images, pictures.OF_MARKDOWN)
    return shown.file("index.md", markdown_writer.write(document, shown))


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_html, write, *([read] if PANGO.present else [])]
