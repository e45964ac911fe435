"""The claim of a PDF to be PDF/A, in its XMP."""

from __future__ import annotations

import re

from pikepdf import Pdf, Stream

from engine import FidelityWarning
from plugins._pdf.name_trees import as_list

_NAMESPACE = "http://www.aiim.org/pdfa/ns/id/"
_PART = re.compile(rb":part(?:\s*=\s*[\"']|\s*>)\s*(\d)")
_LEVEL = re.compile(rb":conformance(?:\s*=\s*[\"']|\s*>)\s*(\w)")
_PROPERTIES = ("part", "conformance", "amd", "corr", "rev")


def claimed_part(packet: bytes) -> int | None:
    """The part of the standard that a packet of XMP names, such as 2 for PDF/A-2b. None without a claim."""
    found = _PART.search(packet) if _NAMESPACE.encode() in packet else None
    return int(found[1]) if found else None


def part_of(document: Pdf) -> int | None:
    """The part of the standard that a document claims to conform to."""
    packet = document.Root.get("/Metadata")
    return claimed_part(packet.read_bytes()) if isinstance(packet, Stream) else None


def claim_of(document: Pdf) -> tuple[object, ...] | None:
    """What a document claims, to compare it with others: part, level, and the profiles of its colors."""
    part = part_of(document)
    if part is None:
        return None
    level = _LEVEL.search(document.Root.Metadata.read_bytes())
    intents = [intent.get("/DestOutputProfile") for intent in as_list(document.Root.get("/OutputIntents"))]
    return part, level and level[1].upper(), *(one.read_bytes() for one in intents if isinstance(one, Stream))


def remove_claim(document: Pdf) -> None:
    """Removes the claim from a document that is changed in a way that PDF/A forbids. Issues a warning if it has one."""
    if part_of(document) is None:
        return
    with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as packet:
        for name in _PROPERTIES:
            packet.pop(f"{{{_NAMESPACE}}}{name}", None)
    warn_removed()


def warn_removed() -> None:
    """Issues the warning of a claim that the result has no more."""
    FidelityWarning.issue("archive_claim_removed", "The result is no PDF/A any more, and does not claim to be.")
