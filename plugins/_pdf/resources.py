"""Resources of PDF pages: what pages draw, and removal of what they do not use."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any, TypeAlias

from pikepdf import Dictionary, Name, NamePath, Object, PdfError, Stream, String

from plugins._pdf.name_trees import Id, Ids, as_list
from plugins._pdf.objects import annotations_of

Categories: TypeAlias = dict[str, dict[str, Object]]
"""Resources by category and name."""

_NAME = re.compile(rb"/([^\s/<>()\[\]{}%]+)")
CATEGORIES = ("/Font", "/XObject", "/ColorSpace", "/ExtGState", "/Pattern", "/Shading", "/Properties")
_DRAWN = ("/XObject", "/Pattern", "/ExtGState", "/Font")
_DEFAULT_SPACES = frozenset({"/DefaultGray", "/DefaultRGB", "/DefaultCMYK"})  # content does not name them
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
    drawn = [*items]
    patterns = dict[Any, Any]()
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
    names = (_ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), one) if b"#" in one else one for one in found)
    return {f"/{name.decode(errors='surrogateescape')}" for name in names}


class UsedResources:
    """Removes what contents do not name from their resources: those of pages, forms, patterns, fonts and soft masks.

    Each content is read once. One that cannot be decoded keeps all.
    """

    def __init__(self, pages: Iterable[Object]) -> None:
        found = [page.get("/Resources") for page in pages]
        found += [resources.get("/Font") for resources in found if isinstance(resources, Dictionary)]
        ids = Counter(item.objgen for item in found if isinstance(item, Dictionary) and item.is_indirect)
        self._common = {item for item, count in ids.items() if count > 1}  # dictionaries of several pages
        self._missing: dict[Id, set[str]] = {}  # names without resources, by content
        self._shared: dict[Id, Categories] = {}  # by dictionary of resources
        self._others: Ids = set()  # resources that draw no content

    def keep(self, page: Object) -> set[str]:
        """Changes the resources of a page, and of all that it and its annotations draw. Returns names without any."""
        holders = (item.get(key) for item in annotations_of(page) for key in ("/AP", "/MK"))
        looks = [look for holder in holders for look in streams_in(holder)]
        return self._keep(page, looks, _MAX_DEPTH) if looks or not self._has_only_fonts(page) else set()

    def _has_only_fonts(self, page: Object) -> bool:
        """Whether the resources of a page are fonts without content, which other pages do not list."""
        resources = page.get("/Resources")
        if not isinstance(resources, Dictionary) or not isinstance(fonts := resources.get("/Font"), Dictionary):
            return False
        if resources.keys() - {"/Font", "/ProcSet"}:
            return False
        is_own = self._common.isdisjoint((resources.objgen, fonts.objgen))
        return is_own and not any(isinstance(font, Dictionary) and "/CharProcs" in font for _, font in fonts.items())

    def _keep(self, holder: Object, drawn: list[Object], depth: int) -> set[str]:
        """As `keep`, for any content. `drawn` are contents that it draws without naming them."""
        if not depth or (holder.is_indirect and holder.objgen in self._missing):
            return self._missing.get(holder.objgen, set())
        self._missing[holder.objgen] = set()  # for contents that draw themselves
        resources = holder.get("/Resources")
        found = self._categories(resources)
        used: Categories = {key: {} for key in found}
        names: set[str] = set()
        new = _names_of(holder)
        while new:
            if _ALL in new:
                new.update(*found.values())
            for key, entries in found.items():
                for name in new & entries.keys():
                    used[key][name] = entries[name]
                    drawn += self._drawn(entries[name]) if key in _DRAWN else ()
            names |= new
            new = {name for content in drawn for name in self._keep(content, [], depth - 1)} - names
            drawn = []
        if any(len(used[key]) < len(entries) for key, entries in found.items()):
            holder.Resources = with_entries(holder.Resources, used)
        names.difference_update(*used.values(), [_ALL] if isinstance(resources, Dictionary) else [])
        self._missing[holder.objgen] = names
        return names

    def _drawn(self, entry: Any) -> list[Object]:
        is_indirect = isinstance(entry, Object) and entry.is_indirect
        if is_indirect and entry.objgen in self._others:
            return []
        drawn = _drawn(entry)
        self._others |= {entry.objgen} if is_indirect and not drawn else set()
        return drawn

    def _categories(self, resources: Any) -> Categories:
        if not isinstance(resources, Dictionary):
            return {}
        if not resources.is_indirect:
            return categories(resources)
        if resources.objgen not in self._shared:
            self._shared[resources.objgen] = categories(resources)
        return self._shared[resources.objgen]


def categories(resources: Object) -> Categories:
    """The entries of resources by category and name."""
    found = {key: entries for key, entries in resources.items() if key in CATEGORIES}
    return {key: dict(entries.items()) for key, entries in found.items() if isinstance(entries, Dictionary)}


def with_entries(resources: Object, entries: Categories) -> Object:
    """A copy of resources with these entries in their categories."""
    changed = copy(resources)
    for key, entries_of_key in entries.items():
        changed[key] = Dictionary()
        for name, entry in entries_of_key.items():  # a dictionary cannot be made from names that are not in UTF-8
            changed[key][name] = entry
    return changed


def _names_of(holder: Object) -> set[str]:
    try:
        return names_in(*_contents(holder)) | _DEFAULT_SPACES
    except PdfError:
        return {_ALL}


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
    groups = [state.get(NamePath.SMask.G) for state in states if isinstance(state, Dictionary)]
    return [entry] if states and "/CharProcs" in entry else [group for group in groups if isinstance(group, Stream)]


def streams_in(holder: Any) -> list[Object]:
    """The streams in a dictionary and in the dictionaries in it, such as the appearances of an annotation."""
    values = [value for _, value in holder.items()] if isinstance(holder, Dictionary) else []
    values += [inner for value in values if isinstance(value, Dictionary) for _, inner in value.items()]
    return [value for value in values if isinstance(value, Stream)]


def drawn_objects(page: Object) -> Iterator[Object]:
    """The images and forms that a page, its annotations and its forms name, each once."""
    looks = [look for item in annotations_of(page) for look in _appearances(item)]
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
    normal = annotation.get(NamePath.AP.N)
    states = [state for _, state in normal.items()] if isinstance(normal, Dictionary) else [normal]
    yield from (state for state in states if isinstance(state, Stream))
