"""Resources of PDF pages: what pages draw, and removal of what they do not use."""

import re
from collections.abc import Iterator
from copy import copy
from typing import Any

from pikepdf import Dictionary, Name, Object, PdfError, Stream, String

from plugins._pdf.name_trees import Id, Ids, as_list

_NAME = re.compile(rb"/([^\s/<>()\[\]{}%]+)")
_CATEGORIES = ("/Font", "/XObject", "/ColorSpace", "/ExtGState", "/Pattern", "/Shading", "/Properties")
_DRAWN = ("/XObject", "/Pattern", "/ExtGState", "/Font")
_DEFAULT_SPACES = ("/DefaultGray", "/DefaultRGB", "/DefaultCMYK")  # content does not name them
_ALL = "*"  # stands for all names, those of content that cannot be decoded
_MAX_DEPTH = 50  # contents in each other; PDFium draws 40
_ESCAPE = re.compile(rb"#([0-9A-Fa-f]{2})")


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


def names_in(*contents: Any) -> set[str]:
    """The names in strings, in content streams and in arrays of them. Raises PdfError if one cannot be decoded."""
    parts = [part for content in contents for part in as_list(content)]
    data = [
        part.read_bytes() if isinstance(part, Stream) else bytes(part)
        for part in parts
        if isinstance(part, Stream | String)
    ]
    found = {name for one in data for name in _NAME.findall(one)}
    names = (_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), name) for name in found)
    return {f"/{name.decode(errors='surrogateescape')}" for name in names}


def keep_used_resources(page: Object, missing: dict[Id, set[str]]) -> set[str]:
    """Removes what a page, and what it and its annotations draw, do not name from their resources.

    Returns the names that no resources have; `missing` has them for all contents that have been visited. Content that
    cannot be decoded keeps all.
    """
    annotations = [item for item in as_list(page.get("/Annots")) if isinstance(item, Dictionary)]
    looks = [look for item in annotations for key in ("/AP", "/MK") for look in _streams(item.get(key))]
    return _keep_used(page, missing, looks, _MAX_DEPTH)


def _keep_used(holder: Object, missing: dict[Id, set[str]], drawn: list[Object], depth: int) -> set[str]:
    """As `keep_used_resources`, for any content that draws the contents `drawn` without naming them."""
    if not depth or (holder.is_indirect and holder.objgen in missing):
        return missing.get(holder.objgen, set())
    missing[holder.objgen] = set()  # for contents that draw themselves
    resources = holder.get("/Resources")
    found = _categories(resources)
    names: set[str] = set()
    new = {*_DEFAULT_SPACES}
    try:
        new |= names_in(*_contents(holder))
    except PdfError:
        new.add(_ALL)
    while new:
        if _ALL in new:
            new.update(*(entries.keys() for entries in found.values()))
        used = [(key, entries[name]) for key, entries in found.items() for name in new & entries.keys()]
        names |= new
        drawn += [content for key, entry in used if key in _DRAWN for content in _drawn(entry)]
        new = {name for content in drawn for name in _keep_used(content, missing, [], depth - 1)} - names
        drawn = []
    if isinstance(resources, Dictionary) and any(entries.keys() - names for entries in found.values()):
        holder.Resources = named_entries(resources, names)
    if isinstance(resources, Dictionary):
        names.discard(_ALL)
    missing[holder.objgen] = names.difference(*(entries.keys() for entries in found.values()))
    return missing[holder.objgen]


def named_entries(resources: Object, names: set[str]) -> Object:
    """A copy of resources with the entries of these names, and those of unknown categories."""
    kept = copy(resources)
    for key, entries in _categories(resources).items():
        kept[key] = copy(entries)
        for name in entries.keys() - names:
            del kept[key][name]
    return kept


def _categories(resources: Any) -> dict[str, Object]:
    """The dictionaries of resources by category."""
    if not isinstance(resources, Dictionary):
        return {}
    return {key: entries for key in _CATEGORIES if isinstance(entries := resources.get(key), Dictionary)}


def _contents(holder: Object) -> list[Any]:
    """The content streams of a page, a form, a pattern or a font."""
    glyphs = holder.get("/CharProcs")
    if isinstance(holder, Stream):
        return [holder]
    return [glyph for _, glyph in glyphs.items()] if isinstance(glyphs, Dictionary) else [holder.get("/Contents")]


def _drawn(entry: Any) -> list[Object]:
    """The content that a resource draws: a form, a pattern, a font, or the soft mask of a graphics state."""
    if isinstance(entry, Stream):
        return [] if entry.get("/Subtype") == Name.Image else [entry]
    states = [entry, entry.get("/ExtGState")] if isinstance(entry, Dictionary) else []
    masks = [state.get("/SMask") for state in states if isinstance(state, Dictionary)]
    groups = [mask.get("/G") for mask in masks if isinstance(mask, Dictionary)]
    return [entry] if states and "/CharProcs" in entry else [group for group in groups if isinstance(group, Stream)]


def _streams(holder: Any) -> list[Object]:
    """The streams in a dictionary and in the dictionaries in it, such as the appearances of an annotation."""
    values = [value for _, value in holder.items()] if isinstance(holder, Dictionary) else []
    values += [inner for value in values if isinstance(value, Dictionary) for _, inner in value.items()]
    return [value for value in values if isinstance(value, Stream)]


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
            names = names_in(holder if isinstance(holder, Stream) else holder.get("/Contents"))
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
