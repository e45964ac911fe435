"""Layers (optional content) of a PDF: removal of what belongs to hidden ones, and those of parts of a document."""

from typing import Any

from pikepdf import Array, Dictionary, Name, NamePath, Object, Pdf, Stream, String

from plugins._pdf.name_trees import Ids, as_list, empty
from plugins._pdf.objects import entries, in_part, walk

_MAX_NESTING = 20  # visibility expressions


def remove_hidden_layers(document: Pdf) -> None:
    """Removes XObjects and annotations of hidden layers, and writes the visibility of each layer without conditions,
    so that readers without support for conditions hide the content that is marked with a layer."""
    properties = document.Root.get("/OCProperties")
    if not isinstance(properties, Dictionary):
        return
    layers: list[Object] = [layer for layer in as_list(properties.get("/OCGs")) if isinstance(layer, Dictionary)]
    hidden = _hidden_layers(layers, properties.get("/D") or Dictionary())
    always, never = (document.make_indirect(Dictionary(Type=Name.OCG, Name=name)) for name in ("always", "never"))
    for item in list(document.objects):
        if isinstance(item, Stream) and not _is_visible(item.get("/OC"), hidden):
            _make_empty_form(item)
    for page in document.pages:
        if isinstance(page.get("/Annots"), Array):
            page.Annots = Array([item for item in page.Annots if _is_visible(item.get("/OC"), hidden)])
    for item in list(document.objects):
        if isinstance(item, Dictionary) and item.get("/Type") == Name.OCMD:
            item.OCGs = always if _is_visible(item, hidden) else never
            for key in {"/VE", "/P"} & set(item.keys()):
                del item[key]
    on, off = ([layer for layer in layers if (layer.objgen in hidden) is state] for state in (False, True))
    properties.OCGs = Array([*layers, always, never])
    properties.D = Dictionary(ON=Array([*on, always]), OFF=Array([*off, never]))


def _hidden_layers(layers: list[Object], defaults: Object) -> Ids:
    """The ids of the hidden layers, by the default configuration and the usage on screen."""
    hidden = {layer.objgen for layer in layers} if defaults.get("/BaseState") == Name.OFF else set()
    hidden -= {layer.objgen for layer in as_list(defaults.get("/ON"))}
    hidden |= {layer.objgen for layer in as_list(defaults.get("/OFF"))}
    for layer in layers:
        state = layer.get(NamePath.Usage.View.ViewState)
        if state == Name.OFF:
            hidden.add(layer.objgen)
        elif state == Name.ON:
            hidden.discard(layer.objgen)
    return hidden


def _is_visible(layer: Any, hidden: Ids) -> bool:
    """Whether a layer, a membership dictionary or None shows what refers to it."""
    if not isinstance(layer, Dictionary):
        return True
    if layer.get("/Type") != Name.OCMD:
        return layer.objgen not in hidden
    if isinstance(layer.get("/VE"), Array):
        return _evaluate(layer.VE, hidden, _MAX_NESTING)
    members = layer.get("/OCGs")
    states = [
        item.objgen not in hidden
        for item in ([members] if isinstance(members, Dictionary) else as_list(members))
        if isinstance(item, Dictionary)
    ]
    policies = {"/AllOn": all(states), "/AnyOff": not all(states), "/AllOff": not any(states)}
    return not states or policies.get(str(layer.get("/P")), any(states))


def _evaluate(expression: Any, hidden: Ids, depth: int) -> bool:
    """The value of a visibility expression: a layer, or an array of an operator and its operands."""
    if not isinstance(expression, Array) or not len(expression) or not depth:
        return _is_visible(expression, hidden)
    operator, *operands = expression
    values = [_evaluate(operand, hidden, depth - 1) for operand in operands]
    if operator == Name.Not:
        return not all(values)
    return any(values) if operator == Name.Or else all(values)


def _make_empty_form(item: Stream) -> None:
    item.write(b"q Q")  # Ghostscript fails on an empty stream with a filter
    for key in list(item.keys()):
        if key != "/Length":
            del item[key]
    item.Type = Name.XObject
    item.Subtype = Name.Form
    item.BBox = Array([0, 0, 0, 0])


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
    for key, value in entries(holder)[::-1]:
        is_group = isinstance(value, Array) and len(value) > 0
        is_layer = isinstance(value, Dictionary) and value.get("/Type") == Name.OCG
        if isinstance(value, Array | Dictionary) and not is_layer and depth and value.objgen not in seen:
            seen |= {value.objgen} if value.is_indirect else set()
            _drop_others(value, seen, depth - 1)
        is_empty = isinstance(value, Dictionary) and not value.keys()
        if is_array and (is_empty or (is_group and all(isinstance(item, String) for item in value))):
            del holder[key]
