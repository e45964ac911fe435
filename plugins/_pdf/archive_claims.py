"""The claim of a PDF to be PDF/A, in its XMP."""

from __future__ import annotations

import re

from pikepdf import Pdf, Stream

from engine import FidelityWarning
from plugins._pdf.name_trees import as_list

_CLAIM = re.compile(rb"pdfaid:(part|conformance)(?:\s*=\s*[\"']|\s*>)\s*(\w)")


def claim(packet: bytes) -> dict[bytes, bytes]:
    """The part and the conformance that a packet of XMP names, such as 2 and B; empty without a claim."""
    return dict(_CLAIM.findall(packet))


def packet_of(document: Pdf) -> bytes:
    """The XMP of a document; empty without any."""
    packet = document.Root.get("/Metadata")
    return packet.read_bytes() if isinstance(packet, Stream) else b""


def claim_of(document: Pdf) -> dict[bytes, bytes]:
    """The claim of a document; empty without one."""
    return claim(packet_of(document))


def is_same_claim(document: Pdf, other: Pdf) -> bool:
    """Whether two documents have the same claim, and the same profiles of colors, or no claim."""
    claims = claim_of(document), claim_of(other)
    return claims[0] == claims[1] and (not claims[0] or profiles_of(document) == profiles_of(other))


def profiles_of(document: Pdf) -> list[bytes]:
    """The profiles of the output intents, which say what colors without a profile are."""
    intents = [intent.get("/DestOutputProfile") for intent in as_list(document.Root.get("/OutputIntents"))]
    return [profile.read_bytes() for profile in intents if isinstance(profile, Stream)]


def remove_claim(document: Pdf) -> None:
    """Removes the claim from a document that is changed in a way that PDF/A forbids. Issues a warning if it has one."""
    if claim_of(document):
        with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as packet:
            for name in [name for name in packet if name.startswith("{http://www.aiim.org/pdfa/ns/id/}")]:
                del packet[name]
        warn_removed()


def warn_removed() -> None:
    """Issues the warning of a claim that the result has no more."""
    FidelityWarning.issue("archive_claim_removed", "The result is no PDF/A any more, and does not claim to be.")
