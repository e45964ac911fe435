"""Signs PDF files, and verifies signatures. Certificates are not looked up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from http import HTTPStatus
from io import BytesIO
from math import inf
from operator import itemgetter
from selectors import SelectSelector
from types import MappingProxyType
from typing import Any, TypeVar

from asn1crypto import cms, pkcs12, tsp
from pikepdf import Dictionary, Pdf
from pyhanko.pdf_utils.content import PdfContent
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.pdf_utils.layout import (
    AxisAlignment,
    BoxConstraints,
    InnerScaling,
    Margins,
    SimpleBoxLayoutRule,
)
from pyhanko.pdf_utils.misc import PdfError
from pyhanko.pdf_utils.reader import PdfFileReader
from pyhanko.sign import fields, signers
from pyhanko.sign.general import SigningError
from pyhanko.sign.timestamps import TimeStamper
from pyhanko.sign.validation import (
    EmbeddedPdfSignature,
    async_validate_pdf_signature,
    async_validate_pdf_timestamp,
)
from pyhanko.sign.validation.status import SignatureCoverageLevel
from pyhanko.stamp import StaticStampStyle
from pyhanko_certvalidator import ValidationContext

from engine import FidelityWarning, InvalidOption, Network, WebRequest
from engine.mupdf import pymupdf
from plugins._pdf.fields import read_fields

T = TypeVar("T")
_NO_MARGINS = SimpleBoxLayoutRule(
    x_align=AxisAlignment.ALIGN_MID,
    y_align=AxisAlignment.ALIGN_MID,
    margins=Margins(0, 0, 0, 0),
    inner_content_scaling=InnerScaling.STRETCH_TO_FIT,
)
_CHANGES = ("none", "archival", "form_filling", "annotations", "other")  # by their level in pyhanko
_MAX_ITERATIONS = 5_000_000  # of the function that hashes the password of a certificate; about 5 seconds
_TIMESTAMP_QUERY = (("Content-Type", "application/timestamp-query"), ("Accept", "application/timestamp-reply"))
_VERSIONS = frozenset({"v1", "v3", "v4", "v5"})  # the versions of SignedData and SignerInfo
_UNREADABLE = MappingProxyType(
    {
        **dict.fromkeys(("type", "signer", "issuer", "serial_number", "certificate_valid_from")),
        **dict.fromkeys(("certificate_valid_until", "signed_at", "reason", "location", "digest_algorithm")),
        **dict.fromkeys(("valid", "covers_whole_file"), False),
        **dict.fromkeys(("changes_after", "changes_permitted", "timestamp")),
        "trust_checked": False,
    }
)
_QUIET = ("pyhanko", "pyhanko_certvalidator")  # their logs have names of people
_FONT = "font-family: sans-serif; font-size: 12px; line-height: 1.2"

for _name_of_log in _QUIET:
    logging.getLogger(_name_of_log).setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True)
class Details:
    """What a signature tells beside its signer, and where it is shown: the index of the page, its box and rotation.

    Without a box, which is in whole units of the content of the page, it is not shown.
    """

    reason: str | None
    location: str | None
    page: int
    box: tuple[int, int, int, int] | None
    rotation: int


def load_signer(data: bytes, password: str | None) -> signers.SimpleSigner:
    """The key and the certificates of a PKCS#12 file. Raises InvalidOption."""
    _check_iterations(data)
    for passphrase in (password.encode(),) if password else (b"", None):
        with suppress(ValueError, AttributeError):  # the latter without a key or its certificate
            signer: signers.SimpleSigner = signers.SimpleSigner.load_pkcs12_data(data, (), passphrase)
            break
    else:
        message = "certificate is no PKCS#12 file with a key and its certificate, or certificate_password is wrong."
        raise InvalidOption(message, reason="malformed", param="certificate_password")
    certificate = signer.signing_cert
    assert certificate is not None  # as it was loaded with the key
    start, end = certificate.not_valid_before, certificate.not_valid_after
    if not start <= datetime.now(UTC) <= end:
        message = f"The certificate is valid from {start} to {end}."
        raise InvalidOption(message, reason="out_of_range", param="certificate")
    return signer


def _check_iterations(data: bytes) -> None:
    """Raises InvalidOption if passwords of a PKCS#12 file are hashed so often that opening it takes many seconds."""
    with suppress(ValueError, TypeError):  # another file, which is refused when it is opened
        file = pkcs12.Pfx.load(data)
        contents = [one["content"].native for one in file.authenticated_safe]
        bags = [pkcs12.SafeContents.load(one).native for one in contents if isinstance(one, bytes)]
        if _iterations([file["mac_data"].native, contents, bags]) > _MAX_ITERATIONS:
            message = f"certificate must have at most {_MAX_ITERATIONS} iterations."
            raise InvalidOption(message, reason="out_of_range", param="certificate")


def _iterations(value: Any) -> int:
    """The sum of the iterations that are named in nested values."""
    if isinstance(value, list):
        return sum(map(_iterations, value))
    if not isinstance(value, Mapping):
        return 0
    own = (value.get(name) for name in ("iterations", "iteration_count"))
    return sum(one for one in own if isinstance(one, int)) + _iterations([*value.values()])


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose tasks wait for nothing outside. The sandbox has no sockets, by which others are woken."""

    def __init__(self) -> None:
        super().__init__(SelectSelector())

    def _make_self_pipe(self) -> None:
        self._csock = None

    def _close_self_pipe(self) -> None: ...


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(coroutine)


class Authority(TimeStamper):
    """A server that gives timestamps by RFC 3161. Raises InvalidOption."""

    def __init__(self, url: str, network: Network | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._url = url
        self._network = network

    async def async_request_tsa_response(self, req: tsp.TimeStampReq) -> tsp.TimeStampResp:
        if self._network is None:
            raise _no_timestamp("unreachable")
        response = self._network.exchange(WebRequest(0, "POST", self._url, _TIMESTAMP_QUERY, req.dump()))
        if response.failure:
            raise _no_timestamp("unreachable" if response.failure == "too_large" else response.failure)
        if response.status != HTTPStatus.OK:
            raise _no_timestamp("http_status", status=response.status)
        return tsp.TimeStampResp.load(response.body)

    async def async_timestamp(self, message_digest: bytes, md_algorithm: str) -> cms.ContentInfo:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError):  # if it is no timestamp
            token = await super().async_timestamp(message_digest, md_algorithm)
            imprint = token["content"]["encap_content_info"]["content"].parsed["message_imprint"]
            if imprint["hashed_message"].native == message_digest:
                return token
        raise _no_timestamp("unreachable")


def _no_timestamp(reason: str, **details: int) -> InvalidOption:
    message = f"The server of timestamp_url gives no timestamp: {reason}."
    return InvalidOption(message, reason=reason, param="timestamp_url", details=details)


class _Writer(IncrementalPdfFileWriter):
    """Leaves the version and the metadata of a file as they are, so that its claim to be PDF/A stays true."""

    def ensure_output_version(self, version: tuple[int, int]) -> None: ...

    def _update_meta(self) -> None: ...


def sign(
    data: bytes, password: str, signer: signers.SimpleSigner, details: Details, authority: Authority | None
) -> bytes:
    """The file with a signature appended to it, so that earlier ones stay valid. The authority says when it was made.

    Raises InvalidOption if an earlier signature forbids it, and for an authority that gives no timestamp.
    """
    writer: Any = _Writer(BytesIO(data), strict=False)
    if writer.prev.encrypted:
        writer.encrypt(password)
    used = {name for name, _, _ in fields.enumerate_sig_fields(writer.prev)}
    name = next(name for number in range(1, len(used) + 2) if (name := f"Signature{number}") not in used)
    metadata = signers.PdfSignatureMetadata(
        field_name=name,
        reason=details.reason,
        location=details.location,
    )
    style = None
    if details.box is not None:
        content = _Appearance(_appearance(signer.subject_name or "", details), details.box)
        style = StaticStampStyle(background=content, background_layout=_NO_MARGINS, border_width=0)
    field = fields.SigFieldSpec(name, on_page=details.page, box=details.box)
    file = BytesIO()
    try:
        pdf_signer = signers.PdfSigner(metadata, signer, timestamper=authority, stamp_style=style, new_field_spec=field)
        _run(pdf_signer.async_sign_pdf(writer, output=file))
    except SigningError:
        message = "A signature of the PDF forbids further ones, or the key of the certificate cannot sign PDFs."
        raise InvalidOption(message, reason="unsupported", param="file") from None
    return file.getvalue()


def _appearance(signer: str, details: Details) -> bytes:
    """A page in the size of the box that names the signer, the date, the reason and the location."""
    assert details.box is not None
    left, bottom, right, top = details.box
    date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    lines = [f"<b>{escape(signer)}</b>", date, *(escape(one) for one in (details.reason, details.location) if one)]
    with pymupdf.open() as document:
        page = document.new_page(width=right - left, height=top - bottom)
        page.insert_htmlbox(page.rect, f'<div style="{_FONT}">{"<br>".join(lines)}</div>', rotate=details.rotation)
        document.subset_fonts()
        data: bytes = document.tobytes(garbage=3, clean=True)
    return data


class _Appearance(PdfContent):
    """The page of a PDF as content of a box."""

    def __init__(self, data: bytes, box: tuple[int, int, int, int]) -> None:
        super().__init__(box=BoxConstraints(width=box[2] - box[0], height=box[3] - box[1]))
        self._data = data

    def render(self) -> bytes:
        form = self._ensure_writer.import_page_as_xobject(PdfFileReader(BytesIO(self._data)))
        self.resources.xobject["/Signature"] = form
        return b"/Signature Do"


def verify(document: Pdf, data: bytes, password: str) -> list[dict[str, Any]]:
    """The signatures of a document, in their order, as values of JSON; unreadable ones last, which are not valid.

    `data` is its file. All are unreadable in one that had to be repaired. Issues a warning for signatures that no form
    field shows.
    """
    try:
        reader = PdfFileReader(BytesIO(data), strict=False)
        if reader.encrypted:
            reader.decrypt(password)
        found = _run(_verify_all(reader, data))
    except PdfError:
        signed = [field for field in read_fields(document) if field.kind == "signature" and "/V" in field.attributes]
        found = [(inf, {"field": field.name, **_UNREADABLE}) for field in signed]
    stored = sum(isinstance(one, Dictionary) and "/ByteRange" in one for one in document.objects)
    if stored > len(found):
        message = f"{stored - len(found)} signatures belong to no form field, and were not verified."
        FidelityWarning.issue("signature_not_verified", message)
    return [values for _, values in sorted(found, key=itemgetter(0))]


async def _verify_all(reader: PdfFileReader, data: bytes) -> list[tuple[float, dict[str, Any]]]:
    """The signatures, each with the number of its revision; infinity for unreadable ones."""
    found: list[tuple[float, dict[str, Any]]] = []
    for name, _, field in fields.enumerate_sig_fields(reader, filled_status=True):
        try:
            signature = EmbeddedPdfSignature(reader, field, name)
            found.append((signature.signed_revision, await _verified(signature, data)))
        except Exception:  # pyHanko raises errors of any type for damaged signatures
            found.append((inf, {"field": name, **_UNREADABLE}))
    return found


async def _verified(signature: EmbeddedPdfSignature, data: bytes) -> dict[str, Any]:
    """What a signature in a file claims, and what is right of it."""
    described = signature.sig_object
    is_timestamp = described.get("/Type") == "/DocTimeStamp"
    certificate = signature.signer_cert
    found: dict[str, Any] = {
        "field": signature.field_name,
        "type": "timestamp" if is_timestamp else "signature",
        "signer": _name(certificate.subject),
        "issuer": _name(certificate.issuer),
        "serial_number": str(certificate.serial_number),
        "certificate_valid_from": _time(certificate.not_valid_before),
        "certificate_valid_until": _time(certificate.not_valid_after),
        "signed_at": _time(signature.self_reported_timestamp),
        "reason": _text(described.get("/Reason")),
        "location": _text(described.get("/Location")),
        "digest_algorithm": signature.md_algorithm,
    }
    context = ValidationContext(trust_roots=[], allow_fetching=False)
    validate = async_validate_pdf_timestamp if is_timestamp else async_validate_pdf_signature
    status: Any = await validate(signature, context)
    stamp = status if is_timestamp else status.timestamp_validity
    is_alone = _fills_gap(signature, data)
    changes = status.modification_level if is_alone else None
    covers_revision = is_alone and status.coverage >= SignatureCoverageLevel.ENTIRE_REVISION
    envelope = cms.ContentInfo.load(signature.pkcs7_content)
    padding = signature.pkcs7_content[len(envelope.dump()) :]
    return {
        **found,
        "valid": status.intact and status.valid and covers_revision and _is_consistent(envelope),
        "covers_whole_file": is_alone and status.coverage == SignatureCoverageLevel.ENTIRE_FILE and not any(padding),
        "changes_after": None if changes is None else _CHANGES[changes.value],
        "changes_permitted": is_alone and status.docmdp_ok,
        "timestamp": stamp
        and {
            "time": _time(stamp.timestamp),
            "authority": _name(stamp.signing_cert.subject),
            "valid": stamp.intact and stamp.valid,
        },
        "trust_checked": False,
    }


def _fills_gap(signature: EmbeddedPdfSignature, data: bytes) -> bool:
    """Whether nothing but the signature itself is between the two parts of the file that it covers."""
    _, end, start, _ = signature.byte_range
    gap = data[end:start]
    return gap[:1] + gap[-1:] == b"<>" and bytes.fromhex(gap[1:-1].decode("ascii")) == signature.pkcs7_content


def _is_consistent(envelope: cms.ContentInfo) -> bool:
    """Whether the parts of a signature that it does not cover itself say what RFC 5652 has them say."""
    signed = envelope["content"]
    used = {one["digest_algorithm"]["algorithm"].native for one in signed["signer_infos"]}
    listed = {one["algorithm"].native for one in signed["digest_algorithms"] if one["parameters"].native is None}
    versions = {signed["version"].native, *(one["version"].native for one in signed["signer_infos"])}
    length = sum(len(envelope[name].dump()) for name in ("content_type", "content"))
    return length == len(envelope.contents) and versions <= _VERSIONS and used == listed


def _name(name: Any) -> str:
    """The common name of a subject or issuer, or all of its name."""
    native = name.native
    return str(native.get("common_name") or name.human_friendly)


def _text(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "decrypted", value))


def _time(value: datetime | None) -> str | None:
    return None if value is None else value.isoformat()
