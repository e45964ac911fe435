"""Style sheets of pages: the styles of text that they give to spans, as books and word processors write them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import cssselect2
import tinycss2

_SPANS = frozenset({"span", "font"})  # elements without a meaning: others say themselves what they are
_BOLD = re.compile("bold|bolder|[6-9]00")
_STYLES: Mapping[str, Callable[[str], Iterable[str]]] = MappingProxyType(
    {
        "font-weight": lambda value: ["bold" if _BOLD.fullmatch(value) else "normal"],
        "font-style": lambda value: ["italic" if value in ("italic", "oblique") else "normal"],
        "text-decoration": lambda value: [one for one in ("underline", "line-through") if one in value],
        "vertical-align": lambda value: [one for one in ("super", "sub") if one == value],
    }
)
"""The values of properties that the reader knows, from those that style sheets have."""
_MAX_SIZE = 1 << 20  # characters of all sheets of a page


def apply(page: Any, find: Callable[[str], bytes | None]) -> None:
    """Writes what style sheets say of spans into their `style` attributes. `find` returns a sheet by its URL."""
    matcher = _matcher("\n".join(_sheets(page, find))[:_MAX_SIZE])
    if matcher is None:
        return
    for wrapped in cssselect2.ElementWrapper.from_html_root(page).iter_subtree():
        element = wrapped.etree_element
        if element.tag in _SPANS and (matches := matcher.match(wrapped)):
            styles: dict[str, list[str]] = {}
            for *_, declared in matches:
                styles |= declared
            own = element.get("style") or ""
            made = (f"{name}:{value}" for name, values in styles.items() if name not in own.lower() for value in values)
            element.set("style", ";".join([own, *made]))


def _sheets(page: Any, find: Callable[[str], bytes | None]) -> Iterator[str]:
    for one in page.iter("style", "link"):
        if "print" in (one.get("media") or "").lower():
            continue
        if one.tag == "style":
            yield "".join(one.itertext())
        elif "stylesheet" in (one.get("rel") or "").lower() and (sheet := find(one.get("href") or "")):
            yield sheet.decode("utf-8", "replace")


def _matcher(sheet: str) -> Any:
    """What finds the styles of elements; None if the sheet has none. At-rules, such as @media, are left out."""
    matcher = cssselect2.Matcher()
    is_empty = True
    for rule in tinycss2.parse_stylesheet(sheet, skip_comments=True, skip_whitespace=True):
        styles = _styles(rule.content) if rule.type == "qualified-rule" else {}
        if not styles:
            continue
        try:
            selectors = cssselect2.compile_selector_list(rule.prelude)
        except cssselect2.SelectorError:
            continue
        for selector in selectors:
            if selector.pseudo_element is None:
                matcher.add_selector(selector, styles)
                is_empty = False
    return None if is_empty else matcher


def _styles(content: Any) -> dict[str, list[str]]:
    declarations = tinycss2.parse_declaration_list(content, skip_comments=True, skip_whitespace=True)
    return {
        name: [*_STYLES[name](tinycss2.serialize(one.value).strip().lower())]
        for one in declarations
        if one.type == "declaration" and (name := one.lower_name.removesuffix("-line")) in _STYLES
    }
