"""Code in HTML, with colors for its parts."""

from html import escape

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

STYLE = HtmlFormatter(style="default").get_style_defs("pre")
"""The style sheet of the colors."""
_MAX_SIZE = 100_000  # characters; some lexers take time with the square


def highlighted(code: str, language: str) -> str:
    """The code as HTML; without colors if the language is not known."""
    try:
        if not language or len(code) > _MAX_SIZE:
            return escape(code, quote=False)
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return escape(code, quote=False)
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))
