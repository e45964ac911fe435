"""Images, and multipart forms with them."""

import io

from PIL import Image

BOUNDARY = "a-boundary-of-this-test"


def image(fmt: str = "JPEG", size: tuple[int, int] = (64, 48)) -> bytes:
    """A file of that Pillow format."""
    file = io.BytesIO()
    Image.linear_gradient("L").resize(size).convert("RGB").save(file, fmt)
    return file.getvalue()


def part(content: bytes, disposition: str) -> bytes:
    """A part of a form; `disposition` is what follows `form-data; `."""
    return b"\r\n".join([f"--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n".encode(), content, b""])


def form(*parts: bytes, end: bool = True) -> bytes:
    """A multipart body."""
    return b"".join(parts) + (f"--{BOUNDARY}--\r\n".encode() if end else b"")


BROWSER_HEADERS = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8", "Sec-Fetch-Mode": "navigate"}
FORM = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
FILE = part(image(), 'name="file"; filename="photo.jpg"')
TARGET = part(b"png", 'name="output_format"')


def conversion_request(posting: str, body: bytes) -> bytes:
    """The bytes of a request for a conversion, from its first lines and its form."""
    head = f"{posting}Content-Type: {FORM['Content-Type']}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
