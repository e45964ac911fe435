"""The title, author, subject and keywords of a PDF, in its information dictionary and in its XMP packet."""

from collections.abc import Mapping
from types import MappingProxyType

from pikepdf import Dictionary, Pdf, String

from engine import split_list

_XMP = MappingProxyType(
    {"title": "dc:title", "author": "dc:creator", "subject": "dc:description", "keywords": "pdf:Keywords"}
)
_SUBJECTS = "dc:subject"  # the keywords as a list


def set_information(document: Pdf, values: Mapping[str, str]) -> None:
    """Sets these values by name; an empty one is removed. Others stay. A packet that is not XML is replaced."""
    info = document.trailer.get("/Info")
    if not isinstance(info, Dictionary) or "/Type" in info:  # broken files may name another object
        document.trailer.Info = document.make_indirect(Dictionary())
    for name, value in values.items():
        key = f"/{name.capitalize()}"
        if value:
            document.trailer.Info[key] = String(value)
        elif key in document.trailer.Info:
            del document.trailer.Info[key]
    with document.open_metadata(set_pikepdf_as_editor=False, update_docinfo=False) as packet:
        for name, value in values.items():
            listed = {_SUBJECTS: {item.strip() for item in split_list(value)}} if name == "keywords" else {}
            texts = {_XMP[name]: [value] if name == "author" else value, **listed}
            for key, text in texts.items():
                is_needed = key != _SUBJECTS or key in packet
                if key in packet:
                    del packet[key]
                if value and is_needed:
                    packet[key] = text
