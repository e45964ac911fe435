"""PDF/A: repairs what can be repaired without a change of the pages, and validates the result.

The validator approves only what it knows. What it does not know is removed where it has no effect on pages.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from io import BytesIO
from typing import Any

from pikepdf import Array, Dictionary, Name, NamePath, Object, Pdf, Stream, String, pdfa

from engine import FidelityWarning, InvalidOption
from plugins._color import profiles
from plugins._pdf import archive_claims, font_repairs, form_fields
from plugins._pdf.active_content import check_active_content
from plugins._pdf.attachments import read_attachments
from plugins._pdf.name_trees import as_list
from plugins._pdf.objects import annotations_of, entries, open_pdf, saved, walk
from plugins._pdf.resources import CATEGORIES

_MAX_LISTED = 10
_ATTEMPTS = 8  # the validator does not look into what it has refused
# Roles of dictionaries whose entries do not change what pages show.
_BESIDE_PAGES = (
    *("Trailer", "Info", "Catalog", "NameDictionary", "Pages", "PageTreeNode", "Page", "Outlines", "OutlineItem"),
    *("PageLabel", "StructTreeRoot", "MarkInfo", "ViewerPreferences", "FontProgram"),
)
_UNKNOWN_KEYS = re.compile(r"unrecognized key\(s\) (/.+) are not checked")
_OF_TEX = "/PTEX."  # the first letters of private entries
_STEP = re.compile(r"(/[^\s\[\]()]+)|\[(\d+)\]")
_WITHOUT_INTENT = re.compile("Device(CMYK|RGB)(?= used with)")
# What the validator says of shadings and patterns, which it does not look into.
_OF_PATTERNS = re.compile(
    r"(shadings( \(sh\))?|patterns|/Pattern colour spaces) are not supported|pattern colour is not supported"
    r"|(scn|SCN) with a pattern.*"
)
_OF_TILES = {"/PatternType", "/PaintType", "/TilingType", "/XStep", "/YStep"}
_ACTIONS = {"/AA", "/OpenAction"}
_UNNEEDED = {"/CIDSet", "/Extensions"}  # those that signatures and encryption need
_REMOVED = {"/PieceInfo", *_ACTIONS, *_UNNEEDED}
_UNTOLD = {"/DocChecksum", "/Info", "/Thumb", "/Type", *_UNNEEDED}  # programs find it elsewhere, or make it again


def archived(document: Pdf, standard: str, param: str, *, sanitize: bool) -> bytes:
    """The document in the standard `pdfa-2b` or `pdfa-3b`. Issues warnings for what it loses beside what was asked for.

    Raises InvalidOption, reason `unsupported`, with what the validator has found. `param` is the name of the option.
    """
    if document.is_encrypted:
        FidelityWarning.issue("encryption_dropped", "The result is not encrypted: PDF/A does not permit that.")
    form_fields.remove_signatures(document)
    if check_active_content(document, sanitize=True) and not sanitize:
        FidelityWarning.issue("active_content", "Scripts, programs and other active content are not in the result.")
    document = _without_forms(open_pdf(saved(document, encryption=False)))
    flavour = standard.removeprefix("pdfa-")
    if flavour == "2b":
        _remove_attachments(document)
    removed = _simplify(document)
    font_repairs.embed_standard(document)
    font_repairs.key_by_cid(document)
    _warn_prepared(_prepared(document, flavour))
    data = _written(document, flavour)
    findings = _findings(data, flavour)
    for _ in range(_ATTEMPTS):
        with open_pdf(data) as written:
            if not _repair(written, findings, flavour, removed):
                break
            data = _written(written, flavour)
        findings = _findings(data, flavour)
    if findings:
        listed = "; ".join(dict.fromkeys(f"{one.message} ({one.where})" for one in findings[:_MAX_LISTED]))
        raise InvalidOption(f"The PDF cannot become PDF/A-{flavour}: {listed}.", reason="unsupported", param=param)
    _warn_removed(removed)
    return data


def _written(document: Pdf, flavour: str) -> bytes:
    file = BytesIO()
    document.save(file, **pdfa.resolve_save_kwargs(flavour))
    return file.getvalue()


def _prepared(document: Pdf, flavour: str) -> pdfa.PrepareResult:
    """Prepares the document with its own output intent if that is valid, otherwise sRGB."""
    own = archive_claims.profiles_of(document)
    with suppress(ValueError):
        return pdfa.prepare(document, flavour, output_intent=own[0] if own else "sRGB")
    return pdfa.prepare(document, flavour)


def _warn_prepared(prepared: pdfa.PrepareResult) -> None:
    if removed := sum(prepared.annotations_removed.values()):
        FidelityWarning.issue("forms_dropped", f"{removed} hidden annotations are not in the result.")
    if prepared.xmp_unreadable:
        FidelityWarning.issue("metadata_damaged", "The XMP metadata cannot be read.")
    if prepared.xmp_dropped:
        names = ", ".join(prepared.xmp_dropped[:_MAX_LISTED])
        FidelityWarning.issue("metadata_dropped", f"PDF/A does not permit properties of the XMP metadata: {names}.")


def _warn_removed(keys: set[str]) -> None:
    """Issues warnings of entries that were removed, by their keys."""
    if keys & _ACTIONS:
        message = "Actions that run by themselves, and the place at which viewers open the file, are not in the result."
        FidelityWarning.issue("active_content", message)
    if others := sorted(keys - _ACTIONS - _UNTOLD):
        names = ", ".join(others[:_MAX_LISTED])
        FidelityWarning.issue("metadata_dropped", f"Entries that cannot be validated are not in the result: {names}.")


def _without_forms(document: Pdf) -> Pdf:
    """The document with form fields drawn into pages, and all annotations where one has no appearance."""
    form_fields.remove_xfa(document)
    has_undrawn = any(_is_undrawn(one) for page in document.pages for one in annotations_of(page.obj))
    if has_undrawn or as_list(document.Root.get(NamePath.AcroForm.Fields)):
        message = "Form fields and annotations without appearance are drawn as they are, without texts of comments."
        FidelityWarning.issue("forms_dropped", message)
        pages = set(range(len(document.pages)))
        document = form_fields.flatten_pages(document, pages, "", annotations=has_undrawn)
    if "/AcroForm" in document.Root:
        del document.Root["/AcroForm"]
    return document


def _is_undrawn(annotation: Object) -> bool:
    is_drawn = annotation.get("/Subtype") in (Name.Link, Name.Popup)
    return not is_drawn and not isinstance(annotation.get("/AP"), Dictionary)


def _remove_attachments(document: Pdf) -> None:
    """Removes attached files, with a warning: PDF/A-2 permits only such that are PDF/A."""
    if any(read_attachments(document)):
        FidelityWarning.issue("attachments_dropped", "PDF/A-2 does not permit attached files; pdfa-3b does.")
    for _, _, holder in list(walk(document)):
        for key in {"/EmbeddedFiles", "/AF"}.intersection(() if isinstance(holder, Array) else holder.keys()):
            del holder[key]
    for page in document.pages:
        kept = [one for one in annotations_of(page.obj) if one.get("/Subtype") != Name.FileAttachment]
        page.obj.Annots = Array(kept)


def _simplify(document: Pdf) -> set[str]:
    """Writes what is right, but not known to the validator, as it knows it. Returns the keys of what it removes."""
    removed: set[str] = set()
    if as_list(document.Root.get("/OpenAction"))[:1] == [document.pages[0].obj]:  # where viewers begin anyway
        del document.Root["/OpenAction"]
    if document.Root.get("/PageMode") == Name.UseAttachments:  # Only viewers use it.
        del document.Root["/PageMode"]
    if "/Type" in (document.trailer.get("/Info") or Dictionary()):  # another object, in a broken file
        del document.trailer["/Info"]
    for _, role, holder in walk(document):
        unwanted = set() if role in CATEGORIES else _REMOVED  # names of resources can be any
        for key, value in entries(holder):
            if isinstance(value, String):
                holder[key] = Name(f"/{value}") if key == "/Tabs" else String(bytes(value))
            elif key == "/Dest" and isinstance(value, Array):
                holder[key] = Array(list(value))
            elif key in unwanted or (key in ("/Pattern", "/Shading") and value == Dictionary()):
                removed |= {key} & _REMOVED if value != Dictionary() else set()
                del holder[key]
        if isinstance(holder, Array):
            continue
        if "/Title" in holder and "/Parent" in holder:  # It is an item of an outline.
            for key in {"/SE", "/Type"} & holder.keys():  # its place in the structure is that of its destination
                del holder[key]
        if holder.get("/Subtype") == Name.CIDFontType2 and "/CIDToGIDMap" not in holder:
            holder.CIDToGIDMap = Name.Identity
        if holder.get("/Subtype") == Name.Image and "/Metadata" in holder:
            del holder["/Metadata"]
            removed.add("/Metadata")
    return removed


def _repair(document: Pdf, findings: Sequence[pdfa.Finding], flavour: str, removed: set[str]) -> bool:
    """Gives colors a meaning, or removes entries that the validator does not know. Returns whether it could.

    Adds the keys of the entries to `removed`.
    """
    needed = {match[0] for finding in findings if (match := _WITHOUT_INTENT.match(finding.message))}
    if "DeviceCMYK" in needed:
        pdfa.prepare(document, flavour, output_intent=profiles.named("fogra39").data)
    if needed:
        _define_rgb(document)
        return True
    has_changed = False
    for finding in findings:
        match = _UNKNOWN_KEYS.fullmatch(finding.message)
        is_beside = finding.rule.removeprefix("pikepdf:schema-") in _BESIDE_PAGES
        holder = _at(document, finding.where) if match else None
        for key in match[1].split(", ") if match else ():
            if isinstance(holder, Dictionary | Stream) and key in holder and (is_beside or key.startswith(_OF_TEX)):
                del holder[key]
                has_changed = True
                removed |= set() if key.startswith(_OF_TEX) else {key}
    return has_changed


def _at(document: Pdf, place: str) -> Any:
    """The object at a place, such as `obj 16 0 (Catalog) /MarkInfo (MarkInfo)` or `trailer`; None if there is none."""
    kind, number, *_ = [*place.split(), ""]
    with suppress(KeyError, IndexError, TypeError, ValueError):
        found: Any = document.get_object(int(number), 0) if kind == "obj" else document.trailer
        for key, index in _STEP.findall(place):
            found = found[key] if key else found[int(index)]
        return found
    return None


def _resources(document: Pdf) -> Iterator[Any]:
    return (value for _, key, value in list(walk(document)) if key == "/Resources" and isinstance(value, Dictionary))


def _define_rgb(document: Pdf) -> None:
    """Makes RGB without a profile sRGB where the output intent is CMYK."""
    profile = document.make_stream(profiles.named("srgb").data, N=3)
    space = document.make_indirect(Array([Name.ICCBased, profile]))
    for resources in _resources(document):
        resources.ColorSpace = Dictionary(resources.get("/ColorSpace") or {})
        resources.ColorSpace.DefaultRGB = space
    for _, key, group in walk(document):
        if key == "/Group" and isinstance(group, Dictionary) and group.get("/CS") == Name.DeviceRGB:
            group.CS = space


def _findings(data: bytes, flavour: str) -> list[pdfa.Finding]:
    """What the validator finds in a file, and in its patterns."""
    found = pdfa.validate_written(BytesIO(data), flavour).findings
    if any(_OF_PATTERNS.fullmatch(one.message) for one in found):
        with open_pdf(data) as opened:
            _open_patterns(opened)
            found += pdfa.check(opened, flavour).findings
    return [*dict.fromkeys(one for one in found if not _OF_PATTERNS.fullmatch(one.message))]


def _open_patterns(document: Pdf) -> None:
    """Replaces patterns and shadings by the color spaces, graphics states and contents of which they consist."""
    for resources in _resources(document):
        shadings = [*(resources.get("/Shading") or {}).values()]
        added: dict[str, list[Any]] = {"/ColorSpace": [], "/ExtGState": [], "/XObject": []}
        for pattern in (resources.get("/Pattern") or {}).values():
            shadings += as_list(pattern.get("/Shading"))
            added["/ExtGState"] += as_list(pattern.get("/ExtGState"))
            if isinstance(pattern, Stream):
                for name in _OF_TILES & pattern.keys():
                    del pattern[name]
                pattern.Type, pattern.Subtype = Name.XObject, Name.Form
                added["/XObject"].append(pattern)
        added["/ColorSpace"] += [shading.ColorSpace for shading in shadings]
        for category, items in added.items():
            entries = {f"/Pattern-{number}": item for number, item in enumerate(items)}
            for name, item in (resources.get(category) or {}).items():
                is_colored = category == "/ColorSpace" and isinstance(item, Array) and item[0] == Name.Pattern
                entries[name] = item[1] if is_colored and len(item) > 1 else item
            resources[category] = Dictionary(entries)
        for name in {"/Shading", "/Pattern"} & resources.keys():
            del resources[name]
