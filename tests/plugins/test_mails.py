"""Mails become pages and text: their head, their text and pictures, and the names of what is attached."""

import pypdfium2
import pytest

from engine import CorruptInput, UnknownFormat
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert
from tests.support.samples.mails import mail, outlook, picture

_REGISTRY = load_registry()
_HTML = '<p>Dear <b>Bob</b></p><img src="cid:logo"><img src="http://a.example/x.gif"><a href="javascript:x()">bad</a>'
_HEAD = "# Offer\n\n|  |  |\n| --- | --- |\n| From | Anna Müller \\<anna@example.org> |\n| To | {} |\n| Date | {} |\n\n"
_SENT = _HEAD.format("bob@example.org", "Sun, 29 Nov 2026 06:00:00 +0100")
_STORED = _HEAD.format("Bob \\<bob@example.org>", "Sun, 22 Nov 2026 11:00:00 +0000")
_PARTS = b'Content-Type: multipart/mixed; boundary="x"\n\n'
_ATTACHED = b'Content-Disposition: attachment; filename="a.bin"\n\n1\n'


def _markdown(data: bytes) -> str:
    """What follows the title."""
    return "# " + convert(data, "md", images="drop").data.decode().partition("\n# ")[2].strip()


def test_the_head_is_before_the_text() -> None:
    assert _markdown(mail("Dear Bob\nplease\n\nread").as_bytes()) == f"{_SENT}Dear Bob\\\nplease\n\nread"


def test_html_precedes_text_and_shows_its_pictures_and_nothing_from_elsewhere() -> None:
    made = mail("as text", _HTML)
    made.get_body(("html",)).add_related(picture(), "image", "png", cid="<logo>")  # type: ignore[union-attr]

    result = convert(made.as_bytes(), "html")
    page = result.data.decode()

    assert "Dear <strong>Bob</strong>" in page
    assert page.count("data:image/png") == 1
    assert not any(word in page for word in ("a.example", "javascript", "as text", "Attachments"))
    assert codes(result) == {"resource_not_loaded", "links_dropped"}


@pytest.mark.parametrize("html", [" ", "<html><body>&nbsp;<br>\n</body></html>"])
def test_text_is_shown_where_the_html_shows_nothing(html: str) -> None:
    assert "as text" in _markdown(mail("as text", html).as_bytes())


def test_attached_files_are_named_on_the_page_and_told() -> None:
    made = mail()
    made.add_attachment(b"123", "application", "octet-stream", filename="Größe.bin")
    made.add_attachment(mail(subject="An older one"))

    result = convert(made.as_bytes(), "pdf")
    text = pypdfium2.PdfDocument(result.data)[0].get_textpage().get_text_bounded()

    assert "Dear Bob" in text
    assert "Größe.bin (3 bytes)" in text
    assert "An older one (" in text
    assert "attachments_dropped" in codes(result)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"From: a\nDate: b\nContent-Type: text/plain; charset=cp1251\n\n\xcf\xf0\xe8\xe2\xe5\xf2", "Привет"),
        (b"From: a\nDate: b\nContent-Type: text/plain; charset=none\n\nGr\xc3\xbc\xc3\x9fe", "Grüße"),
        (b"From: a\nDate: b\nContent-Type: text/plain; format=flowed\n\none \ntwo\n-- \nme", "one two\\\n\\--\\\nme"),
        (b"From: a\nDate: b\nSubject: Gr\xc3\xbc\xc3\x9fe\n\nx", "# Grüße"),
        (b"From: a@[\nTo: =?x?q?y\nDate: b\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\n\nx", "# Grüße"),
        (b"From: a\nDate: b\n" + _PARTS + b"--x\n\none\n--x\n" + _ATTACHED + b"--x\n\ntwo\n--x--\n", "one\n\ntwo\n"),
    ],
)
def test_texts_are_read_in_their_encodings(data: bytes, expected: str) -> None:
    assert expected in convert(data, "md").data.decode()


def test_outlook_has_the_same() -> None:
    result = convert(outlook(html=_HTML.replace("Bob", "Größe").encode("cp1252")), "md")
    text = result.data.decode()

    assert _markdown(outlook()).startswith(f"{_STORED}Dear Bob\n\n## Attachments\n\n- logo.png (")
    assert "Dear **Größe**" in text
    assert "data:image/png" in text
    assert text.endswith("- Größe.bin (3 bytes)\n")
    assert codes(result) == {"resource_not_loaded", "links_dropped", "attachments_dropped"}
    assert "effects_dropped" in codes(convert(outlook(rtf=b"compressed"), "md"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no head", "no head of a mail"),
        (b"From: a\nDate: b\n" + _PARTS + b"--x\n\nText", "truncated"),
        (b"From: a\nDate: b\n" + _PARTS + b"Text", "lacks its parts"),
        (b"From: a\nDate: b\nContent-Transfer-Encoding: base64\n\nRGVhc", "truncated"),
        (outlook()[:48] + b"\x7f" + outlook()[49:], "truncated"),
        (outlook(body="", rtf=b"compressed"), "only in RTF"),
    ],
)
def test_a_damaged_mail_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CorruptInput, match=message):
        convert(data, "md", "mail.msg" if data[:1] == b"\xd0" else "mail.eml")


@pytest.mark.long
def test_nested_parts_are_limited() -> None:
    opened = b"".join(b'Content-Type: multipart/mixed; boundary="%d"\n\n--%d\n' % (n, n) for n in range(1000))
    closed = b"".join(b"\n--%d--\n" % n for n in reversed(range(1000)))

    with pytest.raises(CorruptInput, match="nested too deeply"):
        convert(b"From: a\nDate: b\n" + opened + b"\nText\n" + closed, "md")


@pytest.mark.parametrize(
    ("data", "name", "expected"),
    [
        (mail().as_bytes(), "a.txt", "eml"),
        (mail().as_bytes().replace(b"\n", b"\r\n"), "", "eml"),
        (b"Subject: x\n\nx", "a.eml", "eml"),
        (b"Subject: x\nFrom: a\n\nx", "a.txt", "txt"),
        (b"From: a, and a text\nDate: as it goes\nsome words\n\n", "a.txt", "txt"),
        (outlook(), "", "msg"),
        (outlook(), "a.doc", "msg"),
    ],
)
def test_content_tells_mails(data: bytes, name: str, expected: str) -> None:
    try:
        found = _REGISTRY.identify_content(data, name).name
    except UnknownFormat:
        found = ""

    assert found == expected
