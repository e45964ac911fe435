"""Resources of PDF pages: those that pages share, and removal of what a page does not use."""

import re
from contextlib import suppress
from typing import Any

from pikepdf import Dictionary, Name, Object, Page, PdfError, Stream

from plugins._pdf.name_trees import Ids, as_list

_NAME = re.compile(rb"/([^\s/<>()\[\]{}%]+)")
_OTHERS_WITH_TEXT = {"/ExtGState", "/Pattern", "/Properties"}
_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")


def resource_ids(page: Object) -> Ids:
    """The ids of the resources of a page, of the dictionaries by category in them, and of their entries but fonts."""
    found: list[Any] = [page.get("/Resources")]
    if isinstance(found[0], Dictionary):
        categories = {key: item for key, item in found[0].items() if isinstance(item, Dictionary)}
        found += categories.values()
        found += [entry for key, item in categories.items() if key != "/Font" for _, entry in item.items()]
    return {item.objgen for item in found if isinstance(item, Object) and item.is_indirect}


def drop_unused_resources(page: Page) -> None:
    """Removes the resources with text that neither a page nor what it draws names. Those of other pages stay."""
    page.remove_unreferenced_resources()  # fonts and XObjects; copies what pages share
    resources = page.obj.Resources = Dictionary(dict(page.obj.Resources.items()))
    others = _OTHERS_WITH_TEXT & set(resources.keys())
    if not others:
        return
    drawn = [entry for key in ("/XObject", "/Pattern") for _, entry in (resources.get(key) or Dictionary()).items()]
    fonts = [font for _, font in (resources.get("/Font") or Dictionary()).items() if "/CharProcs" in font]
    glyphs = [glyph for font in fonts for _, glyph in font.CharProcs.items()]
    pictures = [item for item in drawn if isinstance(item, Stream) and item.get("/Subtype") == Name.Image]
    # The names in content that cannot be decoded are unknown.
    with suppress(PdfError):
        used = _names(page.obj.get("/Contents"), *glyphs, *(item for item in drawn if item not in pictures))
        for key in others:
            resources[key] = Dictionary({name: entry for name, entry in resources[key].items() if name in used})


def has_nested_patterns(page: Object, levels: int) -> bool:
    """Whether patterns on a page are nested in more levels than these."""
    patterns = [page]
    for _ in range(levels + 1):
        patterns = _patterns(patterns)
    return bool(patterns)


def _patterns(items: list[Any]) -> list[Any]:
    """The patterns that the pages or patterns draw with, also in forms, without those in patterns."""
    drawn, patterns = [*items], dict[Any, Any]()
    forms: set[Any] = set()
    for item in drawn:  # the loop adds forms
        resources = item.get("/Resources") or Dictionary()
        patterns |= {pattern.objgen: pattern for _, pattern in (resources.get("/Pattern") or Dictionary()).items()}
        for _, form in (resources.get("/XObject") or Dictionary()).items():
            if form.objgen not in forms:
                forms.add(form.objgen)
                drawn.append(form)
    return [pattern for pattern in patterns.values() if isinstance(pattern, Stream)]


def _names(*contents: Any) -> set[str]:
    """The names in content streams and in arrays of them."""
    streams = [part for content in contents for part in as_list(content) if isinstance(part, Stream)]
    found = {name for stream in streams for name in _NAME.findall(stream.read_bytes())}
    names = (_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), name) for name in found)
    return {f"/{name.decode(errors='surrogateescape')}" for name in names}
