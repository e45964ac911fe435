"""Signs a PDF with the key of a PKCS#12 file."""

from __future__ import annotations

from importlib.util import find_spec
from math import ceil
from typing import Annotated

from pydantic import AfterValidator, Field

from engine import (
    AnyTool,
    EncodedFile,
    InputFile,
    InvalidOption,
    NamedFile,
    Network,
    Requirement,
    TooLarge,
    hookimpl,
    lazy_imports,
    tool,
)
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF
from plugins.tools.pdf_crop import BOX

with lazy_imports():
    from plugins._pdf import active_content, documents, signatures
    from plugins._pdf.pages import marks

PYHANKO = Requirement(
    "pyHanko",
    "signing PDFs, and verifying signatures",
    "sh config/setup.sh sign, or pip install pyhanko",
    present=find_spec("pyhanko") is not None,
    tool="pdf-sign",
)
MODULES = ("plugins._pdf.documents", "plugins._pdf.signatures") if PYHANKO.present else ()
TEMPLATE = "documents/signatures"

_MAX_CERTIFICATE = 1 << 20  # bytes


def _check_box(text: str) -> str:
    if min(map(float, text.split(",")[2:])) <= 0:
        raise ValueError("must have a width and a height above 0.")
    return text


Certificate = Annotated[
    NamedFile, InputFile(None, "A PKCS#12 file (.p12, .pfx) with the key and its certificate.", example="signer.p12")
]
CertificatePassword = Annotated[
    str,
    Field(
        max_length=128,
        examples=["secret"],
        description="Opens the certificate.",
        json_schema_extra={"format": "password"},
    ),
]
Reason = Annotated[str, Field(max_length=200, examples=["I approve"], description="Why the PDF is signed.")]
Location = Annotated[str, Field(max_length=200, examples=["Berlin"], description="Where the PDF is signed.")]
PageNumber = Annotated[int, Field(ge=1, description="The page that shows the signature, from 1.")]
TimestampUrl = Annotated[
    str,
    Field(
        max_length=2000,
        examples=["https://timestamps.example/"],
        description="A server that confirms the time of the signature, by RFC 3161. It receives a hash only.",
        json_schema_extra={"format": "uri"},
    ),
]
Box = Annotated[
    str,
    Field(
        pattern=BOX,
        examples=["72,72,200,50"],
        description="x,y,width,height of the signature in points from the upper left corner of the page as shown; "
        "without it, the signature is invisible.",
    ),
    AfterValidator(_check_box),
]


@tool(
    "pdf-sign",
    PDF,
    title="Sign a PDF",
    words="signature certificate digital",
    sources=(PDF,),
    isolated=True,
    encodes=True,
)
def sign(
    data: bytes,
    *,
    certificate: Certificate,
    certificate_password: CertificatePassword | None = None,
    reason: Reason | None = None,
    location: Location | None = None,
    page: PageNumber = 1,
    box: Box | None = None,
    timestamp_url: TimestampUrl | None = None,
    password: Password | None = None,
    sanitize: Sanitize = False,
    network: Network | None = None,
) -> EncodedFile:
    """Signs a PDF with the key of a certificate. Earlier signatures stay valid."""
    if len(certificate.data) > _MAX_CERTIFICATE:
        raise TooLarge("The certificate is larger than 1 MiB.", param="certificate")
    document, opening = documents.open_with_password(data, password)
    count = len(document.pages)
    if page > count:
        message = f"The PDF has {count} pages."
        raise InvalidOption(message, reason="out_of_range", param="page", details={"page_count": count})
    shown = document.pages[page - 1]
    area = None
    if box is not None:
        left, bottom, right, top = marks.Geometry.of(shown).area_in_content(*map(float, box.split(",")))
        area = round(left), round(bottom), ceil(right), ceil(top)
    details = signatures.Details(reason, location, page - 1, area, shown.rotation)
    signer = signatures.load_signer(certificate.data, certificate_password)
    if sanitize or documents.needs_repair(data):
        data = documents.save_document(document, sanitize=sanitize)
    else:
        active_content.check_active_content(document, sanitize=False)
    authority = signatures.Authority(timestamp_url, network) if timestamp_url else None
    return EncodedFile(signatures.sign(data, opening, signer, details, authority), pages=count)


@hookimpl
def tools() -> list[AnyTool]:
    return [sign] if PYHANKO.present else []
