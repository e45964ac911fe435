"""Headers with parameters: Content-Type and Content-Disposition, of requests, of parts of forms and of responses."""

import re
from collections.abc import Mapping
from urllib.parse import unquote_to_bytes

from python_multipart.multipart import parse_options_header

from web.api.errors import malformed

_MAX_LENGTH = 4 << 10  # bytes; the time to parse a header grows with the square
_EXTENDED = re.compile(rb";\s*+filename\*\s*+=\s*+(utf-8|iso-8859-1)'[^';\s]*+'([^;\s]++)", re.IGNORECASE)


def parse_header(value: str | bytes) -> tuple[bytes, Mapping[bytes, bytes]]:
    """The value, in lower case, and the parameters of Content-Type or Content-Disposition. Raises InvalidParameter."""
    if len(value) > _MAX_LENGTH:
        raise malformed(f"A header with parameters is longer than {_MAX_LENGTH} bytes.")
    return parse_options_header(value)


def extended_filename(disposition: bytes) -> str:
    """The parameter `filename*` of Content-Disposition, as a non-ASCII name is sent (RFC 5987); empty without one."""
    extended = _EXTENDED.search(disposition)
    return unquote_to_bytes(extended[2]).decode(extended[1].decode(), "replace") if extended else ""
