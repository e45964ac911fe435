"""Code in HTML, with colors for its parts."""

from contextlib import suppress
from html import escape
from io import StringIO
from typing import Any

from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

STYLE = HtmlFormatter(style="default").get_style_defs("pre")
"""The style sheet of the colors."""
_MAX_SIZE = 100_000  # characters; some lexers take time with the square


def highlighted(code: str, language: str) -> str:
    """The code as HTML; without colors if the language is not known, or if its lexer would change the code."""
    tokens: list[tuple[Any, str]] = []
    with suppress(ClassNotFound):
        if language and len(code) <= _MAX_SIZE:
            tokens += get_lexer_by_name(language, stripnl=False, ensurenl=False).get_tokens(code)
    if "".join(text for _, text in tokens) != code:
        return escape(code, quote=False)
    made = StringIO()
    HtmlFormatter(nowrap=True).format(tokens, made)
    return made.getvalue() if code.endswith("\n") else made.getvalue().removesuffix("\n")
