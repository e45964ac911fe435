"""Markdown, read as HTML by markdown-it."""

from __future__ import annotations

import html as markup
import re
from collections.abc import Mapping

from engine import (
    BLOCKS,
    DOCUMENT,
    AnyConversion,
    Blocks,
    FidelityWarning,
    FileFormat,
    Loss,
    any_of,
    conversion,
    decode_text,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Encoding, Images, Landscape, Margin, Pages, PageSize
from plugins.formats import html
from plugins.formats.html import HTML, PANGO

with lazy_imports():
    import markdown_it
    from mdit_py_plugins import deflist, dollarmath, gfm

    from engine.mupdf import pymupdf
    from plugins._blocks import markdown_writer, writing
    from plugins._text import web_pages

_MODULES = (
    "markdown_it",
    "mdit_py_plugins.gfm",
    "mdit_py_plugins.deflist",
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
_TITLE = re.compile(r"^title:\s*+(.+)$", re.MULTILINE)
_TEX = re.compile(r"[\\^_{]")

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

    Formulas stay as they are written. The page has the title that stands before the text.
    """
    text = decode_text(data, encoding)
    parser = markdown_it.MarkdownIt("commonmark").use(deflist.deflist_plugin)
    parser.use(gfm.gfm_plugin, front_matter=True)
    parser.use(dollarmath.dollarmath_plugin, allow_space=False, allow_digits=False, renderer=_write_formula)
    environment: dict[str, object] = {}
    tokens = parser.parse(text, environment)
    title = _TITLE.search(tokens[0].content) if tokens and tokens[0].type == "front_matter" else None
    body = parser.renderer.render(tokens, parser.options, environment)
    name = markup.escape(title[1].strip("\"' ")) if title else ""
    head = f'<meta charset="utf-8"><title>{name}</title><style>{_STYLE}</style>'
    return f"<!DOCTYPE html>\n<html><head>{head}</head><body>\n{body}</body></html>\n".encode()


def _write_formula(tex: str, options: Mapping[str, bool]) -> str:
    if _TEX.search(tex):
        FidelityWarning.issue("effects_dropped", "Formulas are shown as they are written, in TeX.")
    sign = "$$" if options["display_mode"] else "$"
    return f"{sign}{markup.escape(tex)}{sign}"


@conversion(MD, DOCUMENT, cost=9, isolated=True)
def read(
    data: bytes,
    *,
    page_size: PageSize | None = None,
    landscape: Landscape | None = None,
    margin: Margin | None = None,
    pages: Pages | None = None,
    encoding: Encoding | None = None,
) -> pymupdf.Document:
    """Pages of A4 with margins of 20 mm, unless the options have others."""
    return web_pages.lay_out(to_html.run(data, encoding=encoding), page_size, landscape, margin, pages)


@conversion(BLOCKS, MD, loss=Loss.DETAIL)
def write(document: Blocks, *, images: Images = "embed") -> bytes:
    """The Markdown of GitHub, after front matter with the title, the authors and the language."""
    return markdown_writer.write(document, writing.Pictures(images)).encode()


@hookimpl
def conversions() -> list[AnyConversion]:
    return [to_html, write, *([read] if PANGO.present else [])]
