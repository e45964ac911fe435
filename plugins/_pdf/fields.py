"""Form fields of a PDF: their names, kinds, values, options and places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pikepdf import Array, Dictionary, Name, NamePath, Object, Page, Pdf, Stream

from plugins._pdf.name_trees import Id, Ids, as_list
from plugins._pdf.objects import annotations_of, entries

READ_ONLY = 1
REQUIRED = 1 << 1
MULTILINE = 1 << 12
PASSWORD = 1 << 13
_RADIO = 1 << 15
_BUTTON = 1 << 16
_COMBO = 1 << 17
EDITABLE = 1 << 18
MULTISELECT = 1 << 21
COMB = 1 << 24
_INHERITED = ("/FT", "/Ff", "/V", "/DA", "/Q", "/MaxLen", "/Opt")
_OFF = "/Off"
_MAX_LEVELS = 50


def text_of(value: Any) -> str:
    """A string, a stream or a name as text, without halves of characters."""
    if isinstance(value, Stream):
        data = value.read_bytes()
        text = data.decode("utf-16" if data[:2] in (b"\xfe\xff", b"\xff\xfe") else "latin-1", "replace")
    else:
        text = str(value).removeprefix("/") if isinstance(value, Name) else str(value)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Field:
    """A field with a value: `holder` has the value, `widgets` show it, `attributes` are its own and inherited ones."""

    name: str
    holder: Object
    widgets: list[Object]
    attributes: dict[str, Any]

    @property
    def flags(self) -> int:
        """The field flags of the standard."""
        flags = self.attributes.get("/Ff")
        return flags if isinstance(flags, int) else 0

    @property
    def kind(self) -> str:
        """`text`, `checkbox`, `radio`, `button`, `choice` (opens a list), `list` or `signature`."""
        match self.attributes.get("/FT"):
            case Name.Btn:
                return "button" if self.flags & _BUTTON else "radio" if self.flags & _RADIO else "checkbox"
            case Name.Ch:
                return "choice" if self.flags & _COMBO else "list"
            case Name.Sig:
                return "signature"
        return "text"

    @property
    def max_length(self) -> int | None:
        """The number of characters that a text may have."""
        length = self.attributes.get("/MaxLen")
        return length if isinstance(length, int) and length > 0 else None

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The values of a choice or list, each with what is shown for it."""
        pairs = [[text_of(one) for one in as_list(item)] for item in as_list(self.attributes.get("/Opt"))]
        return [(pair[0], pair[-1]) for pair in pairs if pair]

    @property
    def states(self) -> list[tuple[str, str]]:
        """The value of each widget of a checkbox or radio, and the name of its state when it is on."""
        values = as_list(self.attributes.get("/Opt"))
        found = []
        for index, widget in enumerate(self.widgets):
            states = [state for state in _looks(widget) if state != _OFF] or ["/Yes"]
            given = values[index] if len(values) == len(self.widgets) else None
            found.append((text_of(Name(states[0]) if given is None else given), states[0]))
        return found

    @property
    def options(self) -> list[str]:
        """The values that the field can have; empty if it takes any text."""
        pairs = self.choices if self.kind in ("choice", "list") else self.states if self.is_switch else []
        return list(dict.fromkeys(value for value, _ in pairs))

    @property
    def is_switch(self) -> bool:
        """Whether its widgets are on or off."""
        return self.kind in ("checkbox", "radio")

    @property
    def value(self) -> str | bool | list[str] | None:
        """The value: text, a list of a list with several, whether a checkbox is on, or the option that is on."""
        held = self.attributes.get("/V")
        if self.is_switch:
            on = next((value for value, state in self.states if isinstance(held, Name) and str(held) == state), None)
            return on is not None if self.kind == "checkbox" and len(self.options) < 2 else on
        if self.kind in ("button", "signature") or held is None:
            return None
        return [text_of(one) for one in held] if isinstance(held, Array) else text_of(held)


def _looks(widget: Object) -> list[str]:
    """The names of the states that a widget can show."""
    normal = widget.get(NamePath.AP.N)
    return list(normal.keys()) if isinstance(normal, Dictionary) else []


def read_fields(document: Pdf) -> list[Field]:
    """The fields with a value, in the order of the form. Several of one name are one field for viewers."""
    found: list[Field] = []
    seen: Ids = set()
    roots = as_list(document.Root.get(NamePath.AcroForm.Fields))
    shared = {key: value for key, value in entries(document.Root.get("/AcroForm")) if key in ("/DA", "/Q")}
    pending: list[tuple[Any, tuple[str, ...], dict[str, Any]]] = [(one, (), shared) for one in roots[::-1]]
    while pending:
        item, above, inherited = pending.pop()
        if not isinstance(item, Dictionary) or item.objgen in seen or len(above) > _MAX_LEVELS:
            continue
        seen |= {item.objgen} if item.is_indirect else set()
        attributes = inherited | {key: item[key] for key in _INHERITED if key in item}
        name = (*above, text_of(item["/T"])) if "/T" in item else above
        kids: list[Object] = [kid for kid in as_list(item.get("/Kids")) if isinstance(kid, Dictionary)]
        if any("/T" in kid or "/Kids" in kid for kid in kids):
            pending += [(kid, name, attributes) for kid in kids[::-1]]
        elif "/FT" in attributes and name:
            found.append(Field(".".join(name), item, kids or [item], attributes))
    return found


def widget_pages(document: Pdf) -> dict[Id, tuple[int, Page]]:
    """The number of the page, from 1, and the page of each annotation."""
    pages = list(enumerate(document.pages, 1))
    return {one.objgen: place for place in pages for one in annotations_of(place[1].obj)}
