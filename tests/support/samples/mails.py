"""Mails: as they are sent (EML), and as Outlook stores them (MSG)."""

import struct
from email.message import EmailMessage
from io import BytesIO

from PIL import Image

from tests.support.samples.compound_files import compound_file


def picture() -> bytes:
    """A red PNG of 10 x 10 pixels."""
    file = BytesIO()
    Image.new("RGB", (10, 10), "red").save(file, "PNG")
    return file.getvalue()


def mail(text: str = "Dear Bob", html: str = "", *, subject: str = "Offer") -> EmailMessage:
    """A mail of Anna to Bob, with HTML beside its text if there is some."""
    made = EmailMessage()
    fields = {
        "From": "Anna Müller <anna@example.org>",
        "To": "bob@example.org",
        "Date": "Sun, 29 Nov 2026 06:00:00 +0100",
    }
    for name, value in ({"Subject": subject} | fields).items():
        made[name] = value
    made.set_content(text)
    if html:
        made.add_alternative(html, subtype="html")
    return made


def outlook(*, body: str = "Dear Bob", html: bytes = b"", rtf: bytes = b"") -> bytes:
    """A mail of Anna to Bob with the picture `logo`, and a file in a code page, which are attached."""
    sent = struct.pack("<HHIQ", 0x40, 0x39, 0, 134_398_188_000_000_000)
    page = struct.pack("<HHIQ", 3, 0x3FDE, 0, 1252)
    to = struct.pack("<HHIQ", 3, 0x0C15, 0, 1)
    texts = {0x0037: "Offer", 0x0C1A: "Anna Müller", 0x0C1F: "anna@example.org", 0x1000: body}
    return compound_file(
        {
            "__properties_version1.0": bytes(32) + sent + page,
            "__nameid_version1.0": {},
            **{f"__substg1.0_{number:04X}001F": text.encode("utf-16-le") for number, text in texts.items() if text},
            **{f"__substg1.0_{number}0102": data for number, data in (("1013", html), ("1009", rtf)) if data},
            "__recip_version1.0_#00000000": {
                "__properties_version1.0": bytes(8) + to,
                "__substg1.0_3001001F": "Bob".encode("utf-16-le"),
                "__substg1.0_39FE001F": "bob@example.org".encode("utf-16-le"),
            },
            "__attach_version1.0_#00000000": {
                "__substg1.0_37010102": picture(),
                "__substg1.0_3707001F": "logo.png".encode("utf-16-le"),
                "__substg1.0_370E001F": "image/png".encode("utf-16-le"),
                "__substg1.0_3712001F": "logo".encode("utf-16-le"),
            },
            "__attach_version1.0_#00000001": {
                "__substg1.0_37010102": b"123",
                "__substg1.0_3704001E": "Größe.bin".encode("cp1252"),
            },
        }
    )
