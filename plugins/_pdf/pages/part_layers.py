"""Layers (optional content) of parts of a PDF: those that their pages use."""

from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from plugins._pdf.name_trees import Ids, as_list, empty
from plugins._pdf.objects import walk
from plugins._pdf.pages.part_objects import in_part

_MAX_DEPTH = 100  # arrays in each other


def add_layers(part: Pdf, properties: Object) -> None:
    """Adds the layers to which objects of the part refer, of the `properties` of all, which are indirect."""
    found = {value.objgen for _, _, value in walk(part) if value.is_indirect}
    own = in_part(part, properties)
    for layer in as_list(own.get("/OCGs")):
        if isinstance(layer, Dictionary) and layer.objgen not in found:
            empty(layer)
    _drop_others(own, set(), _MAX_DEPTH)
    if as_list(own.get("/OCGs")):
        part.Root.OCProperties = own


def _drop_others(holder: Any, seen: Ids, depth: int) -> None:
    """Removes empty layers from a dictionary or array, and groups without others."""
    is_array = isinstance(holder, Array)
    for key, value in [*enumerate(holder)][::-1] if is_array else [*holder.items()]:
        is_group = isinstance(value, Array) and len(value) > 0
        is_layer = isinstance(value, Dictionary) and value.get("/Type") == Name.OCG
        if isinstance(value, Array | Dictionary) and not is_layer and depth and value.objgen not in seen:
            seen |= {value.objgen} if value.is_indirect else set()
            _drop_others(value, seen, depth - 1)
        is_empty = isinstance(value, Dictionary) and not value.keys()
        if is_array and (is_empty or (is_group and all(isinstance(item, String) for item in value))):
            del holder[key]
