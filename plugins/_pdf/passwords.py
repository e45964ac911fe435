"""Passwords of PDF files, prepared by SASLprep (RFC 4013) as ISO 32000-2 requires for AES with 256 bits."""

from __future__ import annotations

import stringprep
from typing import TYPE_CHECKING
from unicodedata import ucd_3_2_0

from engine import FidelityWarning

if TYPE_CHECKING:
    from engine.mupdf import pymupdf

_PROHIBITED = ("c21_c22", "c3", "c4", "c5", "c6", "c7", "c8", "c9")  # tables of RFC 3454


def prepared(password: str) -> str:
    """The password as files are encrypted with it: spaces and forms of characters are unified, hidden ones left out.

    Raises ValueError for control characters and others that a password must not have.
    """
    mapped = ("" if stringprep.in_table_b1(one) else " " if stringprep.in_table_c12(one) else one for one in password)
    result = ucd_3_2_0.normalize("NFKC", "".join(mapped))
    if any(getattr(stringprep, f"in_table_{table}")(one) for table in _PROHIBITED for one in result):
        raise ValueError("must not have control characters.")
    return result


def variants(password: str) -> tuple[str, ...]:
    """The password as it is given, and prepared if that differs: other programs encrypt with the one or the other."""
    try:
        return tuple(dict.fromkeys((password, prepared(password))))
    except ValueError:
        return (password,)


def authenticate(document: pymupdf.Document, password: str) -> bool:
    """Opens a document with the password, if it needs one. Returns whether it is open."""
    return not document.needs_pass or any(document.authenticate(variant) for variant in variants(password))


def is_of_owner(document: pymupdf.Document, password: str) -> bool:
    """Whether the password is the owner's, of a document that opens without one."""
    if document.metadata["encryption"] and any(document.authenticate(variant) for variant in variants(password)):
        return True
    document.authenticate("")  # a wrong password has closed it
    return False


def warn_unused() -> None:
    """Warns of a password for a file that opens without one."""
    message = "The file opens without a password: password has no effect. user_password protects a PDF."
    FidelityWarning.issue("option_ignored", message, of_original=True)
