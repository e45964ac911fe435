"""Fills the form of a PDF."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import BeforeValidator, Field

from engine import EncodedFile, FidelityWarning, InvalidOption, lazy_imports, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import appearances, archive_claims, documents, fields, form_fields

MODULES = ("plugins._pdf.documents", "plugins._pdf.form_fields", "plugins._pdf.appearances")
TEMPLATE = "documents"


def _given(values: object) -> object:
    """The values without those that are null, as `pdf-info` describes fields without a value."""
    return {name: value for name, value in values.items() if value is not None} if isinstance(values, dict) else values


Value: TypeAlias = str | bool | int | float | list[str]
Values = Annotated[
    dict[str, Value],
    Field(
        min_length=1,
        max_length=1000,
        examples=[{"name": "Ann Lee", "agreed": True, "country": "NO"}],
        description="The values by the names of fields: text, true or false for a checkbox, one of its options for "
        "others, a list of them for a list with several; an empty text or false for none. pdf-info lists the fields.",
    ),
    BeforeValidator(_given),
]
Flatten = Annotated[bool, Field(description="Makes the form fields part of the pages, so that they cannot be changed.")]
_MAX_NAMES = 100  # names and options in an error
_MAX_LISTED = 10  # names in a warning


@tool("pdf-form", PDF, title="Fill a PDF form", words="fill in fields", sources=(PDF,), isolated=True, encodes=True)
def fill(
    data: bytes,
    *,
    fields: Values,
    flatten: Flatten = False,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Fills the form fields of a PDF, so that every viewer shows the values."""
    document = documents.open_document(data, password)
    _fill(document, fields)
    form_fields.remove_signatures(document)
    form_fields.remove_xfa(document)
    archive_claims.remove_claim(document)  # The fonts of the values are not always embedded.
    if flatten:
        pages = set(range(len(document.pages)))
        document = form_fields.flatten_pages(document, pages, password or "", annotations=False)
    return EncodedFile(documents.save_document(document, sanitize=sanitize), pages=len(document.pages))


def _fill(document: pikepdf.Pdf, values: dict[str, Value]) -> None:
    """Sets the values. Raises InvalidOption for a name that no field has, and a value that the field cannot have."""
    known: dict[str, list[fields.Field]] = {}
    for field in fields.read_fields(document):
        if field.kind not in ("button", "signature"):
            known.setdefault(field.name, []).append(field)
    if not known:
        raise InvalidOption("The PDF has no form field that can be filled.", reason="nothing_found", param="file")
    writable = [name for name, found in known.items() if not any(one.flags & fields.READ_ONLY for one in found)]
    writer = appearances.AppearanceWriter(document)
    for name, value in values.items():
        if name not in writable:
            problem = "is read-only" if name in known else "does not exist"
            raise _refusal(name, problem, "unknown", available=writable[:_MAX_NAMES])
        for field in known[name]:
            _set(writer, field, value)
    calculated = [
        name
        for name, found in known.items()
        if name not in values and any(pikepdf.NamePath.AA.C in one.holder for one in found)
    ]
    if calculated:
        names = ", ".join(name[:100] for name in calculated[:_MAX_LISTED])
        message = f"Form fields that scripts calculate keep their values, because scripts are not run: {names}."
        FidelityWarning.issue("fields_not_calculated", message)
    form = document.Root.AcroForm
    if form.get("/NeedAppearances"):
        for field in (field for name, found in known.items() if name not in values for field in found):
            if not all("/AP" in widget for widget in field.widgets):
                writer.show(field, field.value)
        del form["/NeedAppearances"]


def _set(writer: appearances.AppearanceWriter, field: fields.Field, value: Value) -> None:
    if field.is_switch:
        _switch(writer, field, value)
        return
    if isinstance(value, bool):
        raise _refusal(field.name, "takes text", "malformed")
    given = value if isinstance(value, list) else [str(value)] if value != "" else []
    if len(given) > 1 and not field.flags & fields.MULTISELECT * (field.kind == "list"):
        raise _refusal(field.name, "takes one value", "malformed")
    if field.kind == "text":
        _set_text(writer, field, "".join(given))
        return
    exported = {text: value for value, text in field.choices} | {value: value for value, _ in field.choices}
    is_free = field.kind == "choice" and field.flags & fields.EDITABLE
    if (wrong := [one for one in given if one not in exported]) and not is_free:
        raise _refusal(field.name, f"has no option {wrong[0][:100]}", "unknown", available=field.options[:_MAX_NAMES])
    chosen = [exported.get(one, one) for one in given]
    _hold(field, pikepdf.Array(map(pikepdf.String, chosen)) if len(chosen) > 1 else pikepdf.String("".join(chosen)))
    if "/I" in field.holder:
        del field.holder["/I"]
    writer.show(field, chosen)


def _set_text(writer: appearances.AppearanceWriter, field: fields.Field, text: str) -> None:
    text = text.replace("\r\n", "\n")
    if field.max_length is not None and len(text) > field.max_length:
        raise _refusal(field.name, f"has at most {field.max_length} characters", "out_of_range", max=field.max_length)
    if "\n" in text and not field.flags & fields.MULTILINE:
        raise _refusal(field.name, "has one line", "malformed")
    _hold(field, pikepdf.String(text))
    writer.show(field, text)


def _switch(writer: appearances.AppearanceWriter, field: fields.Field, value: Value) -> None:
    """Turns the widgets of a checkbox or radio on or off."""
    options = field.options
    chosen = options[0] if value is True and field.kind == "checkbox" else value
    if chosen and chosen not in options:
        available = [*options, "true", "false"] if field.kind == "checkbox" else options
        raise _refusal(field.name, "has no such option", "unknown", available=available[:_MAX_NAMES])
    states = field.states
    on = next((state for option, state in states if chosen and option == chosen), "/Off")
    _hold(field, pikepdf.Name(on))
    for widget, (option, state) in zip(field.widgets, states, strict=True):
        if not isinstance(widget.get("/AP"), pikepdf.Dictionary):
            writer.add_state(widget, state)
        widget.AS = pikepdf.Name(state if chosen and option == chosen else "/Off")


def _hold(field: fields.Field, value: pikepdf.Object) -> None:
    """Sets the value where the field has it, and without a rich one."""
    field.holder.V = value
    if "/RV" in field.holder:
        del field.holder["/RV"]


def _refusal(name: str, problem: str, reason: str, **details: object) -> InvalidOption:
    return InvalidOption(f"The form field {name[:100]} {problem}.", reason=reason, param="fields", details=details)
