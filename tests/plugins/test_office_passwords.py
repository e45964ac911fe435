"""Workbooks and presentations of before 2007 with a password."""

import struct
from io import BytesIO

import olefile
import pytest

from engine import UnknownFormat
from plugins._office import documents, libreoffice, slide_encryption
from tests.support.results.conversions import convert
from tests.support.samples import encrypted_slides
from tests.support.samples.compound_files import compound_file, obfuscated


def test_a_short_workbook_is_known_to_be_encrypted() -> None:
    plain = struct.pack("<HHHHHHII", 0x809, 16, 0x600, 5, 0xDBB, 0x7CC, 0x41, 6) + struct.pack("<HH", 10, 0)

    found = [documents.is_encrypted(compound_file({"Workbook": one})) for one in (plain, obfuscated(plain, "secret"))]

    assert found == [False, True]


@pytest.mark.long
def test_an_obfuscated_workbook_opens_with_its_password() -> None:
    sheet = convert(b"Harbor\n", "ods", "a.csv").data
    written = libreoffice.convert(sheet, "ods", libreoffice.Filter("MS Excel 97", "xls")).data
    with olefile.OleFileIO(BytesIO(written)) as plain:
        data = compound_file({"Workbook": obfuscated(plain.openstream("Workbook").read(), "secret")})

    assert convert(data, "csv", password="secret").data == b"Harbor\n"
    for options in ({}, {"password": "wrong"}):
        with pytest.raises(UnknownFormat) as refused:
            convert(data, "csv", **options)
        assert refused.value.reason == "file_encrypted"


def test_records_and_pictures_of_an_encrypted_presentation_are_decrypted() -> None:
    data = encrypted_slides.encrypted_slides()

    assert documents.is_encrypted(data)
    decrypted = slide_encryption.decrypt(data, encrypted_slides.PASSWORD)
    assert not documents.is_encrypted(decrypted)
    with olefile.OleFileIO(BytesIO(decrypted)) as file:
        slides, pictures = (file.openstream(name).read() for name in ("PowerPoint Document", "Pictures"))
        assert not file.exists("EncryptedSummary")
    assert slides.startswith(b"".join(encrypted_slides.RECORDS))
    assert pictures == b"".join(map(b"".join, encrypted_slides.PICTURES))


@pytest.mark.parametrize("options", [{}, {"password": "wrong"}])
def test_an_encrypted_presentation_needs_its_password(options: dict[str, str]) -> None:
    with pytest.raises(UnknownFormat) as refused:
        convert(encrypted_slides.encrypted_slides(), "pdf", **options)

    assert refused.value.reason == "file_encrypted"
