"""Resources of PDF pages: those that pages share, and removal of what a page does not use."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pikepdf import Dictionary, Name, Object, Page, PdfError, Stream

from plugins._pdf.name_trees import Ids, as_list

_NAME = re.compile(rb"/([^\s/<>()\[\]{}%]+)")
_OTHERS_WITH_TEXT = {"/ExtGState", "/Pattern", "/Properties"}
_CATEGORIES = ("/Font", "/XObject", "/ColorSpace", "/ExtGState", "/Pattern", "/Shading", "/Properties")
_DEFAULT_SPACES = ("/DefaultGray", "/DefaultRGB", "/DefaultCMYK")  # content does not name them
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
    """Removes the resources with text that neither the page nor what it draws names. Other pages keep theirs."""
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


def shared_resources(pages: Iterable[Object]) -> Ids:
    """The ids of the dictionaries of resources that several pages have, of whole pages or of a category."""
    found: Counter[tuple[int, int]] = Counter()
    for page in pages:
        resources = page.get("/Resources")
        if isinstance(resources, Dictionary):
            dictionaries = (resources, *(resources.get(key) for key in _CATEGORIES))
            found.update(item.objgen for item in dictionaries if isinstance(item, Dictionary) and item.is_indirect)
    return {item for item, count in found.items() if count > 1}


def keep_used_resources(page: Page, shared: Ids) -> None:
    """Gives a page resources of its own if it has `shared` ones: those that it or what it draws names.

    Content that cannot be decoded keeps all.
    """
    resources = page.obj.get("/Resources")
    if not isinstance(resources, Dictionary):
        return
    found = {key: resources[key] for key in _CATEGORIES if isinstance(resources.get(key), Dictionary)}
    if not any(item.objgen in shared for item in (resources, *found.values())):
        return
    used: dict[str, dict[str, Any]] = {key: {} for key in found}
    names: set[str] = set()
    with suppress(PdfError):
        new = {*_DEFAULT_SPACES, *_names(page.obj.get("/Contents"))}
        while new:
            entries = [(key, name, found[key][name]) for name in new for key in found if name in found[key]]
            for key, name, entry in entries:
                used[key][name] = entry
            names |= new
            new = (
                _names(*(content for *_, entry in entries for content in _drawn_with_resources_of_page(entry))) - names
            )
        others = {key: value for key, value in resources.items() if key not in found}
        page.obj.Resources = Dictionary({**others, **{key: Dictionary(entries) for key, entries in used.items()}})


def _drawn_with_resources_of_page(entry: Any) -> list[Any]:
    """The content of a form, pattern or font without resources of its own."""
    if "/Resources" in entry or not isinstance(entry, Dictionary | Stream):
        return []
    if isinstance(entry, Stream):
        return [] if entry.get("/Subtype") == Name.Image else [entry]
    glyphs = entry.get("/CharProcs")
    return [glyph for _, glyph in glyphs.items()] if isinstance(glyphs, Dictionary) else []


def drawn_objects(page: Object) -> Iterator[Object]:
    """The pictures and forms that a page, its annotations and its forms name, each once."""
    annotations = [item for item in as_list(page.get("/Annots")) if isinstance(item, Dictionary)]
    looks = [look for item in annotations for look in _appearances(item)]
    pending: list[tuple[Any, Any]] = [(page, page.get("/Resources")), *((look, None) for look in looks)]
    seen: Ids = set()
    while pending:
        holder, inherited = pending.pop()
        resources = holder.get("/Resources") or inherited
        forms = resources.get("/XObject") if isinstance(resources, Dictionary) else None
        if not isinstance(forms, Dictionary):
            continue
        try:
            names = _names(holder if isinstance(holder, Stream) else holder.get("/Contents"))
        except PdfError:
            names = set(forms.keys())
        for name in sorted(names):
            drawn = forms.get(name) if name in forms else None
            if isinstance(drawn, Stream) and drawn.objgen not in seen:
                seen.add(drawn.objgen)
                yield drawn
                if drawn.get("/Subtype") == Name.Form:
                    pending.append((drawn, resources))


def _appearances(annotation: Object) -> Iterator[Object]:
    looks = annotation.get("/AP")
    normal = looks.get("/N") if isinstance(looks, Dictionary) else None
    states = [state for _, state in normal.items()] if isinstance(normal, Dictionary) else [normal]
    yield from (state for state in states if isinstance(state, Stream))
