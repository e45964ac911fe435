"""Encryption of PDFs: passwords, permissions, and their removal."""

from io import BytesIO
from typing import Any

import pikepdf
import pypdfium2
import pytest

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.tools import run_tool
from tests.support.samples.pdf_documents import document, opened, page_texts, saved

_DATA = document("A", 2)


@pytest.mark.parametrize(
    ("passwords", "opening"),
    [
        ({"user_password": "käse", "owner_password": "owner"}, ["käse", "owner"]),
        ({"user_password": "user"}, ["user"]),
        ({"owner_password": "owner"}, ["", "owner"]),
        ({"user_password": "x" * 127}, ["x" * 127]),
    ],
)
def test_either_password_opens_the_file_in_all_readers(passwords: dict[str, Any], opening: list[str]) -> None:
    data = run_tool("pdf-protect", _DATA, **passwords).data

    for password in opening:
        assert opened(data, password).encryption.R == 6
        assert pypdfium2.PdfDocument(data, password=password or None)[0].get_textpage().get_text_bounded() == "A page 1"
        with pymupdf.open(stream=data) as read:
            assert not read.needs_pass or read.authenticate(password)
            assert read[0].get_text().strip() == "A page 1"
    for wrong in ("", "wrong"):
        if wrong not in opening:
            with pytest.raises(pikepdf.PasswordError):
                pikepdf.open(BytesIO(data), password=wrong)


@pytest.mark.parametrize(
    ("allow", "expected"),
    [
        (None, {"print", "copy", "modify", "annotate", "forms"}),
        ("", set()),
        ("print", {"print"}),
        (" copy , forms", {"copy", "forms"}),
        ('["modify", "annotate"]', {"modify", "annotate"}),
    ],
)
def test_permissions(allow: str | None, expected: set[str]) -> None:
    options: dict[str, Any] = {} if allow is None else {"allow": allow}

    found = opened(run_tool("pdf-protect", _DATA, user_password="u", **options).data, "u").allow

    fields: dict[str, tuple[bool, ...]] = {
        "print": (found.print_lowres, found.print_highres),
        "copy": (found.extract,),
        "modify": (found.modify_other, found.modify_assembly),
        "annotate": (found.modify_annotation,),
        "forms": (found.modify_form,),
    }
    assert {name for name, values in fields.items() if all(values)} == expected
    assert {name for name, values in fields.items() if any(values)} == expected
    assert found.accessibility


def test_the_random_password_of_the_owner_is_another_one_each_time() -> None:
    first, second = (opened(run_tool("pdf-protect", _DATA, user_password="u").data, "u") for _ in range(2))

    assert first.trailer.Encrypt.O != second.trailer.Encrypt.O


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({}, "user_password"),
        ({"user_password": ""}, "user_password"),
        ({"user_password": "u", "allow": "print,everything"}, "allow"),
        ({"user_password": "ü" * 64}, "user_password"),
        ({"owner_password": "u" * 128}, "owner_password"),
    ],
)
def test_refused_requests(options: dict[str, Any], param: str) -> None:
    with pytest.raises(ConversionError) as raised:
        run_tool("pdf-protect", _DATA, **options)

    assert (raised.value.code, raised.value.param) == ("invalid_parameter", param)
    assert "ü" not in str(raised.value)


def test_new_passwords_replace_the_old_ones() -> None:
    locked = run_tool("pdf-protect", _DATA, user_password="old", allow="print").data

    again = run_tool("pdf-protect", locked, password="old", user_password="new").data

    assert opened(again, "new").allow.extract
    with pytest.raises(pikepdf.PasswordError):
        pikepdf.open(BytesIO(again), password="old")


@pytest.mark.parametrize("revision", [2, 3, 4, 6])
@pytest.mark.parametrize("password", ["user", "owner"])
def test_either_password_unlocks(revision: Any, password: str) -> None:
    keys: dict[str, Any] = {"aes": revision >= 4, "metadata": revision >= 4}
    locked = saved(
        pikepdf.open(BytesIO(_DATA)), encryption=pikepdf.Encryption(user="user", owner="owner", R=revision, **keys)
    )

    result = run_tool("pdf-unlock", locked, password=password)

    assert not opened(result.data).is_encrypted
    assert (page_texts(result.data), result.codes) == (["A page 1", "A page 2"], set())


def test_no_password_is_needed_where_that_of_users_is_empty() -> None:
    locked = run_tool("pdf-protect", _DATA, owner_password="owner", allow="").data

    assert not opened(run_tool("pdf-unlock", locked).data).is_encrypted


def test_a_file_without_encryption_stays_as_it_is() -> None:
    result = run_tool("pdf-unlock", _DATA, password="needless")

    assert (result.data, result.codes) == (_DATA, {"kept_original"})
    assert run_tool("pdf-unlock", _DATA, sanitize=True).codes == set()
