"""Encrypts a PDF with passwords and permissions."""

from __future__ import annotations

from secrets import token_urlsafe
from typing import Annotated

from pydantic import AfterValidator, Field

from engine import EncodedFile, lazy_imports, split_list, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

with lazy_imports():
    import pikepdf

    from plugins._pdf import documents, form_fields

MODULES = ("plugins._pdf.documents", "plugins._pdf.form_fields")
TEMPLATE = "documents"

_MAX_PASSWORD = 127  # bytes in UTF-8, by the standard
# The permissions of PDF by the names that clients use. Accessibility is always permitted.
_PERMISSIONS = {
    "print": ("print_lowres", "print_highres"),
    "copy": ("extract",),
    "modify": ("modify_other", "modify_assembly"),
    "annotate": ("modify_annotation",),
    "forms": ("modify_form",),
}


def _check_password(text: str) -> str:
    if len(text.encode()) > _MAX_PASSWORD:
        raise ValueError(f"must have at most {_MAX_PASSWORD} bytes.")
    return text


def _allowed(text: str) -> list[str]:
    return [name for item in split_list(text) if (name := item.strip())]


def _check_allowed(text: str) -> str:
    if not _PERMISSIONS.keys() >= {*_allowed(text)}:
        raise ValueError(f"must be a list of {', '.join(_PERMISSIONS)}.")
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
        description=f"What is permitted without the owner's password, a list of {', '.join(_PERMISSIONS)}; by default "
        "everything.",
    ),
    AfterValidator(_check_allowed),
]


@tool("pdf-protect", PDF, title="Protect a PDF", sources=(PDF,), isolated=True, encodes=True)
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
    if not (user_password or owner_password):
        raise documents.missing_option(("user_password", "owner_password"))
    document = documents.open_document(data, password)
    form_fields.remove_signatures(document)
    names = _PERMISSIONS if allow is None else _allowed(allow)
    granted = {field for name in names for field in _PERMISSIONS[name]}
    permissions = {field: field in granted for fields in _PERMISSIONS.values() for field in fields}
    allowed = pikepdf.Permissions(**permissions)
    owner = owner_password or token_urlsafe()
    encryption = pikepdf.Encryption(user=user_password or "", owner=owner, R=6, allow=allowed)
    result = documents.save_document(document, sanitize=sanitize, encryption=encryption)
    return EncodedFile(result, pages=len(document.pages), secrets={"password": user_password or ""})
