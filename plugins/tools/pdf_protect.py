"""Encrypts PDF files with passwords and permissions: those of clients, and results of conversions."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Annotated

from pydantic import AfterValidator, Field

from engine import EncodedFile, InvalidOption, lazy_imports, split_list, tool, transform
from engine.option_types import InputPassword, Password, ResultStandard, Sanitize
from plugins._pdf.passwords import prepared
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, objects

MODULES = ("plugins._pdf.documents",)
TEMPLATE = "documents"

_MAX_PASSWORD = 127  # bytes in UTF-8, by the standard
# The permissions of PDF by the names that clients use. Accessibility is always permitted.
PERMISSIONS = {
    "print": ("print_lowres", "print_highres"),
    "copy": ("extract",),
    "modify": ("modify_other", "modify_assembly"),
    "annotate": ("modify_annotation",),
    "forms": ("modify_form",),
}


def _check_password(text: str) -> str:
    found = prepared(text)
    if len(found.encode()) > _MAX_PASSWORD:
        raise ValueError(f"must have at most {_MAX_PASSWORD} bytes.")
    if text and not found:
        raise ValueError("must have visible characters.")
    return text


def _allowed(text: str) -> list[str]:
    return [name for item in split_list(text) if (name := item.strip())]


def _check_allowed(text: str) -> str:
    if not PERMISSIONS.keys() >= {*_allowed(text)}:
        raise ValueError(f"must be a list of {', '.join(PERMISSIONS)}.")
    return text


_SECRET = {"format": "password"}
UserPassword = Annotated[
    str,
    Field(max_length=_MAX_PASSWORD, examples=["secret"], description="Opens the result.", json_schema_extra=_SECRET),
    AfterValidator(_check_password),
]
OwnerPassword = Annotated[
    str,
    Field(
        max_length=_MAX_PASSWORD,
        examples=["secret"],
        description="Opens the result with all permissions; by default a random one.",
        json_schema_extra=_SECRET,
    ),
    AfterValidator(_check_password),
]
Allow = Annotated[
    str,
    Field(
        max_length=200,
        examples=["print,copy"],
        description=f"What is permitted without the owner's password, a list of {', '.join(PERMISSIONS)}; by default "
        "everything.",
    ),
    AfterValidator(_check_allowed),
]


@tool(
    "pdf-protect",
    PDF,
    title="Protect a PDF",
    words="password encrypt lock secure",
    sources=(PDF,),
    isolated=True,
    encodes=True,
    example=("user_password",),
)
def protect(
    data: bytes,
    *,
    user_password: UserPassword | None = None,
    owner_password: OwnerPassword | None = None,
    allow: Allow | None = None,
    password: Password | None = None,
    sanitize: Sanitize = False,
) -> EncodedFile:
    """Encrypts a PDF by AES with 256 bits."""
    encryption = _encryption(user_password, owner_password, allow)
    document = documents.open_document(data, password)
    result = documents.save_document(document, sanitize=sanitize, encryption=encryption)
    return EncodedFile(result, pages=len(document.pages), secrets={"password": encryption.user})


@transform(PDF)
def encrypt(
    data: bytes,
    *,
    user_password: UserPassword | None = None,
    owner_password: OwnerPassword | None = None,
    allow: Allow | None = None,
    password: InputPassword | None = None,
    pdf_standard: ResultStandard = "none",
) -> EncodedFile:
    """Encrypts the result of a conversion, which can have the encryption of its input."""
    if pdf_standard != "none":
        message = "A PDF of a standard is not encrypted: send either pdf_standard or passwords."
        raise InvalidOption(message, reason="exclusive", param="pdf_standard")
    encryption = _encryption(user_password, owner_password, allow)
    with objects.open_pdf(data, password or "") as document:
        return EncodedFile(objects.saved(document, encryption=encryption), secrets={"password": encryption.user})


def _encryption(user_password: str | None, owner_password: str | None, allow: str | None) -> pikepdf.Encryption:
    """The encryption with these passwords and permissions. Raises InvalidOption if there is no password."""
    if not (user_password or owner_password):
        raise documents.missing_option(("user_password", "owner_password"))
    names = PERMISSIONS if allow is None else _allowed(allow)
    granted = {field for name in names for field in PERMISSIONS[name]}
    permissions = {field: field in granted for fields in PERMISSIONS.values() for field in fields}
    owner = prepared(owner_password) if owner_password else token_urlsafe()
    user = prepared(user_password or "")
    return pikepdf.Encryption(user=user, owner=owner, R=6, allow=pikepdf.Permissions(**permissions))
