"""Encodings of text files."""

import codecs

from engine import formats
from engine.conversions import FidelityWarning
from engine.errors import CorruptInput
from engine.lazy import lazy_imports

with lazy_imports():
    import charset_normalizer

_WESTERN = "cp1252"
_ENCODINGS = (_WESTERN, "cp1250", "iso8859_2", "cp1251", "koi8_r", "gb18030", "big5", "cp949", "cp932", "euc_jp")


def decode_text(data: bytes, encoding: str | None = None) -> str:
    """The text of a file in the encoding that is named, in UTF-8, in UTF-16 with a byte order mark, or in another one.

    Which one is recognized by its characters, with a FidelityWarning unless it is windows-1252. Raises CorruptInput.
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode(encoding or ("utf-16" if data.startswith(formats.UTF_16_MARKS) else "utf-8"))
    except UnicodeDecodeError as error:
        if encoding:
            raise CorruptInput(f"The file is not text in {encoding}.") from error
        text = data.decode(_recognized(data))
    if formats.NO_TEXT.search(text):
        raise CorruptInput("The file contains control characters.")
    return text


def _recognized(data: bytes) -> str:
    """The encoding of a text by its characters. Raises CorruptInput if none is likely."""
    found = charset_normalizer.from_bytes(data, cp_isolation=list(_ENCODINGS))
    best = found.best()
    if best is None:
        raise CorruptInput("The encoding of the text is not recognized. The option `encoding` can name it.")
    # Of encodings that are equally likely, most texts have this one.
    if any(_WESTERN in one.could_be_from_charset and one.chaos <= best.chaos for one in found):
        return _WESTERN
    FidelityWarning.issue("encoding_guessed", f"The text was read as {best.encoding}; `encoding` can name another one.")
    return best.encoding
