"""Layers (optional content) of parts of a PDF: those that their pages use."""

from typing import Any

from pikepdf import Array, Dictionary, Object, Pdf

from plugins._pdf.name_trees import as_list

_KEY = "/ConvertdLayer"  # layers have this key until their part is complete
_LISTS = ("/Order", "/ON", "/OFF", "/Locked")


class PartLayers:
    """The layers of a document, and their state by default."""

    def __init__(self, document: Pdf) -> None:
        properties = document.Root.get("/OCProperties")
        self._count = 0
        if not isinstance(properties, Dictionary):
            return
        layers = [layer for layer in as_list(properties.get("/OCGs")) if isinstance(layer, Dictionary)]
        for number, layer in enumerate(layers):
            layer[_KEY] = number
        self._count = len(layers)
        self._properties = document.make_indirect(Dictionary(dict(properties.items())))
        defaults = properties.get("/D")
        self._defaults = defaults if isinstance(defaults, Dictionary) else Dictionary()
        flat = {key: _flat(self._defaults.get(key)) for key in _LISTS}
        self._places = {key: {number: place for place, number in enumerate(found)} for key, found in flat.items()}
        others = {key: value for key, value in self._defaults.items() if key in ("/BaseState", "/Name", "/Intent")}
        self._others = document.make_indirect(Dictionary(others))

    def add_to(self, part: Pdf) -> None:
        """Adds the layers to which the objects of the part refer."""
        if not self._count:
            return
        found: dict[int, Object] = {}
        for item in part.objects:
            if isinstance(item, Dictionary) and _KEY in item:
                found[int(item[_KEY])] = item
        for layer in found.values():
            del layer[_KEY]
        if len(found) == self._count:
            part.Root.OCProperties = part.copy_foreign(self._properties)
        elif found:
            defaults = part.copy_foreign(self._others)
            for key, places in self._places.items():
                listed = sorted(found.keys() & places.keys(), key=places.__getitem__)
                if listed:
                    defaults[key] = Array([found[number] for number in listed])
            layers = Array([found[number] for number in sorted(found)])
            part.Root.OCProperties = Dictionary(OCGs=layers, D=defaults)


def _flat(items: Any) -> list[int]:
    """The numbers of the layers in an array of layers and arrays."""
    found: list[int] = []
    pending = as_list(items)[::-1]
    while pending:
        item = pending.pop()
        if isinstance(item, Array) and not item.is_indirect:
            pending += list(item)[::-1]
        elif isinstance(item, Dictionary) and _KEY in item:
            found.append(int(item[_KEY]))
    return found
