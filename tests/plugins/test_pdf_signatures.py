"""Signatures are valid for poppler too, stay valid under later ones, and are not if a byte changes."""

import json
import re
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from asn1crypto import cms, pkcs12
from pyhanko.pdf_utils.incremental_writer import IncrementalPdfFileWriter
from pyhanko.sign import fields, signers

from engine import ConversionError
from engine.mupdf import pymupdf
from plugins._pdf import signatures
from tests.support.results.conversions import run_tool
from tests.support.samples.certificates import pkcs12_file
from tests.support.samples.pdf_documents import document, page_texts

_DATA = document("A", 2)


def _sign(data: bytes, certificate: bytes = b"", **options: Any) -> bytes:
    files = {"certificate": certificate or pkcs12_file()}
    return run_tool("pdf-sign", data, files=files, **options).data


def _verify(data: bytes, **options: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run_tool("pdf-verify", data, **options).data)["signatures"]
    return found


def _certified() -> bytes:
    """A document whose author permits no changes."""
    signer = signatures.load_signer(pkcs12_file(), None)
    writer = IncrementalPdfFileWriter(BytesIO(_DATA))
    metadata = signers.PdfSignatureMetadata(
        field_name="Author", certify=True, docmdp_permissions=fields.MDPPerm.NO_CHANGES
    )
    return bytes(signers.sign_pdf(writer, metadata, signer).getvalue())


def _by_poppler(folder: Path, data: bytes, *arguments: str) -> str:
    file = folder / "signed.pdf"
    file.write_bytes(data)
    return subprocess.run(["pdfsig", "-nocert", *arguments, file], capture_output=True, text=True, timeout=60).stdout


def test_a_signature_is_valid_and_says_what_was_given(tmp_path: Path) -> None:
    certificate = pkcs12_file("Zoë Łuk", "secret")

    signed = _sign(_DATA, certificate, certificate_password="secret", reason="I agree", location="Köln")

    (found,) = _verify(signed)
    assert signed.startswith(_DATA)
    given = {"signer": "Zoë Łuk", "issuer": "Zoë Łuk", "reason": "I agree", "location": "Köln", "field": "Signature1"}
    right = {"valid": True, "covers_whole_file": True, "changes_after": "none", "digest_algorithm": "sha256"}
    assert found.items() >= {**given, **right, "timestamp": None, "trust_checked": False}.items()
    poppler = _by_poppler(tmp_path, signed)
    assert "Signature is Valid" in poppler
    assert "Total document signed" in poppler
    assert b"secret" not in signed


def _is_told(changed: bytes, *, covered: bool) -> bool:
    """Whether pdf-verify refuses a file with a changed byte, which the signature covers, or else does not cover.

    If it does not, the signature can be valid, but must not be said to cover the whole file.
    """
    try:
        run = run_tool("pdf-verify", changed)
    except ConversionError:
        return True
    found = json.loads(run.data)["signatures"]
    if not found:
        return "signature_not_verified" in run.codes
    return not any(one["valid"] and (covered or one["covers_whole_file"]) for one in found)


@pytest.mark.parametrize("step", [199, pytest.param(1, marks=pytest.mark.long)])
def test_each_changed_byte_is_told(step: int) -> None:
    signed = _sign(_DATA)
    gap = _gap(signed)

    missed = []
    for index in range(0, len(signed), step):
        changed = bytearray(signed)
        changed[index] ^= 1  # changes each digit of the gap
        if not _is_told(bytes(changed), covered=index not in gap):
            missed.append(index)

    assert missed == []
    assert not _is_told(signed, covered=True)


def _gap(signed: bytes) -> range:
    """Where the signature itself is."""
    start = signed.index(b"/Contents <3") + len("/Contents ")
    return range(start, signed.index(b">", start) + 1)


@pytest.mark.long
def test_poppler_tells_each_changed_byte(tmp_path: Path) -> None:
    signed = _sign(_DATA)

    for index in {*range(len(signed))}.difference(_gap(signed)):
        changed = bytearray(signed)
        changed[index] ^= 1
        assert "Signature is Valid" not in _by_poppler(tmp_path, bytes(changed))


def _forged(signed: bytes) -> bytes:
    """The signed parts, one after the other; then another page, and the signature in as many bytes as between them."""
    gap = _gap(signed)
    covered = signed[: gap.start] + signed[gap.stop :]
    contents = bytes.fromhex(signed[gap.start + 1 : gap.stop - 1].decode())
    contents = contents[: len(cms.ContentInfo.load(contents).dump())]
    size = 2 * len(contents) + len("<>")
    for character in (b"\\", b"(", b")"):
        contents = contents.replace(character, b"\\" + character)
    contents = contents.replace(b"\r", b"\\r")
    ranges = b"/ByteRange [0 %d %d %d]" % (gap.start, gap.start, len(covered) - gap.start)
    start = b"/Type /Sig /Filter /Adobe.PPKLite /SubFilter /adbe.pkcs7.detached"
    text = b"BT /F1 12 Tf 20 100 Td (Forged) Tj ET"
    objects = {
        _number(rb"/Contents (\d+) 0 R", signed): b"<</Length %d>>stream\n%s\nendstream" % (len(text), text),
        _number(rb"/V (\d+) 0 R", signed): b"<<%s %s /Contents (%s)>>" % (start, ranges, contents),
    }
    result, table = covered, b"xref\n"
    for number, content in objects.items():
        table += b"%d 1\n%010d 00000 n \n" % (number, len(result))
        result += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    trailer = b"trailer\n<</Root 1 0 R /Size 99 /Prev %d>>\n" % covered.rindex(b"xref\n0 ")
    end = b"\nstartxref\n%d\n%%%%EOF\n" % len(result)
    return (result + table + trailer).ljust(len(covered) + size - len(end)) + end


def _number(pattern: bytes, data: bytes) -> int:
    found = re.search(pattern, data)
    assert found is not None
    return int(found[1])


def test_a_page_beside_the_signed_parts_is_told() -> None:
    """pyHanko says that the signature covers the whole file."""
    forged = _forged(_sign(_DATA))

    assert "Forged" in page_texts(forged)
    (found,) = _verify(forged)
    assert (found["valid"], found["covers_whole_file"], found["changes_after"]) == (False, False, None)


def test_earlier_signatures_stay_valid(tmp_path: Path) -> None:
    first = _sign(_DATA, page=2, box="20,20,100,40")
    both = _sign(first, pkcs12_file("Jim"))

    found = _verify(both)
    assert [(one["field"], one["signer"], one["valid"]) for one in found] == [
        ("Signature1", "Jane Doe", True),
        ("Signature2", "Jim", True),
    ]
    assert [one["covers_whole_file"] for one in found] == [False, True]
    assert (found[0]["changes_after"], found[0]["changes_permitted"]) == ("form_filling", True)
    assert _by_poppler(tmp_path, both).count("Signature is Valid") == 2


def test_a_change_after_a_signature_is_told(tmp_path: Path) -> None:
    file = tmp_path / "signed.pdf"
    file.write_bytes(_sign(_DATA))
    with pymupdf.open(file) as edited:
        edited[0].insert_text((20, 20), "more")
        edited.saveIncr()

    (found,) = _verify(file.read_bytes())

    assert (found["covers_whole_file"], found["changes_after"], found["changes_permitted"]) == (False, "other", False)


@pytest.mark.parametrize("turn", [0, 90, 180, 270])
def test_a_signature_is_shown_upright_in_its_box(turn: int) -> None:
    with pymupdf.open(stream=_DATA) as made:
        made[1].set_rotation(turn)
        data = made.tobytes()

    signed = _sign(data, page=2, box="20,30,120,40", reason="I agree")

    with pymupdf.open(stream=signed) as shown:
        pixels = shown[1].get_pixmap(annots=True)
        dark = [(x, y) for x in range(pixels.width) for y in range(pixels.height) if pixels.pixel(x, y)[0] < 128]
        marks = [(x, y) for x, y in dark if 20 <= x <= 140 and 30 <= y <= 70]
        across, down = ({place[side] for place in marks} for side in (0, 1))
        assert len(across) > len(down) > 5
        words = next(shown[1].widgets())
        assert words.field_name == "Signature1"


def test_encrypted_and_damaged_files_are_signed(tmp_path: Path) -> None:
    locked = run_tool("pdf-protect", _DATA, user_password="user").data
    damaged = _DATA.replace(b"\nxref\n", b"\nxerf\n")

    signed = _sign(locked, password="user", reason="Yes")
    repaired = _sign(damaged)

    assert [(one["valid"], one["reason"]) for one in _verify(signed, password="user")] == [(True, "Yes")]
    assert "Signature is Valid" in _by_poppler(tmp_path, signed, "-upw", "user")
    assert [one["valid"] for one in _verify(repaired)] == [True]


def test_no_signature_of_a_file_without_its_table_of_objects_is_valid() -> None:
    plain, signed = (re.sub(rb"startxref\s+\d+", b"startxref\n7", data) for data in (_DATA, _sign(_DATA)))

    runs = [run_tool("pdf-verify", data) for data in (plain, signed)]

    assert ["repaired" in run.codes for run in runs] == [True, True]
    assert [
        [(one["field"], one["valid"], one["covers_whole_file"]) for one in json.loads(run.data)["signatures"]]
        for run in runs
    ] == [[], [("Signature1", False, False)]]


def test_a_signature_that_permits_no_change_is_kept() -> None:
    certified = _certified()

    assert [(one["valid"], one["changes_permitted"]) for one in _verify(certified)] == [(True, True)]
    with pytest.raises(ConversionError) as refused:
        _sign(certified)
    assert (refused.value.reason, refused.value.param) == ("unsupported", "file")


def _with_iterations(number: int) -> bytes:
    """A file of a key whose password has to be hashed so often."""
    file = pkcs12.Pfx.load(pkcs12_file("Jane", "secret"))
    file["mac_data"]["iterations"] = number
    return bytes(file.dump(force=True))


@pytest.mark.parametrize(
    ("certificate", "options", "param"),
    [
        (_with_iterations(2**31 - 1), {"certificate_password": "secret"}, "certificate"),
        (pkcs12_file("Jane", "secret"), {"certificate_password": "wrong"}, "certificate_password"),
        (pkcs12_file("Jane", "secret"), {}, "certificate_password"),
        (b"0\x82\x01\x00 no file of a key", {}, "certificate_password"),
        (pkcs12_file(days=0), {}, "certificate"),
        (pkcs12_file(), {"page": 3}, "page"),
    ],
)
def test_keys_that_cannot_sign_are_refused(certificate: bytes, options: dict[str, Any], param: str) -> None:
    with pytest.raises(ConversionError) as refused:
        _sign(_DATA, certificate, **options)
    assert (refused.value.code, refused.value.param) == ("invalid_parameter", param)
