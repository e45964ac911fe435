"""IPTC-IIM, the captions of news images: read and written as Photoshop's resources, filtered, and as XMP."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from plugins._metadata import exif_data

# The first byte of a dataset, and the flag of a size with more bytes.
_MARKER = 0x1C
_EXTENDED = 0x8000
# Records.
_ENVELOPE = 1
_APPLICATION = 2
# The dataset of record 1 with the encoding.
_CHARACTERS = 90
_UTF_8 = b"\x1b%G"
# Photoshop's signature and its number of IPTC.
_RESOURCE = b"8BIM"
_IIM = 0x0404

# XMP's equivalents of the datasets of record 2, as the IPTC Core has them.
_PROPERTIES: Mapping[int, str] = MappingProxyType(
    {
        5: "dc:title",
        10: "photoshop:Urgency",
        15: "photoshop:Category",
        20: "photoshop:SupplementalCategories",
        25: "dc:subject",
        40: "photoshop:Instructions",
        55: "photoshop:DateCreated",
        80: "dc:creator",
        85: "photoshop:AuthorsPosition",
        90: "photoshop:City",
        92: "Iptc4xmpCore:Location",
        95: "photoshop:State",
        100: "Iptc4xmpCore:CountryCode",
        101: "photoshop:Country",
        103: "photoshop:TransmissionReference",
        105: "photoshop:Headline",
        110: "photoshop:Credit",
        115: "photoshop:Source",
        116: "dc:rights",
        120: "dc:description",
        122: "photoshop:CaptionWriter",
    }
)
_DATE = 55
_PLACES = frozenset({26, 27, 90, 92, 95, 100, 101})
# Version, title, keywords, dates, authors, headline, credit, source, copyright, caption and its writer.
_SAFE = frozenset({0, 5, 25, 55, 60, 62, 63, 80, 85, 105, 110, 115, 116, 120, 122})


class _Dataset(NamedTuple):
    record: int
    number: int
    value: bytes
    data: bytes
    """The complete bytes."""


def read(info: Mapping[Any, Any]) -> bytes | None:
    """The IPTC of an image, from what Pillow found in the file. None without."""
    resources = info.get("photoshop")
    found = resources.get(_IIM) if isinstance(resources, dict) else None
    if found is None and (profile := exif_data.raw_profile(info.get("Raw profile type iptc"))):
        found = from_resources(profile) or profile
    return found if isinstance(found, bytes) and found else None


def from_resources(data: bytes) -> bytes | None:
    """The IPTC in resources of Photoshop. None without."""
    start = 0
    while data[start : start + 4] == _RESOURCE and start + 12 <= len(data):
        number = int.from_bytes(data[start + 4 : start + 6])
        size_at = start + 6 + (data[start + 6] + 2) // 2 * 2
        content = size_at + 4
        end = content + int.from_bytes(data[size_at:content])
        if number == _IIM:
            return data[content:end] or None
        start = end + (end - content) % 2
    return None


def to_resources(iptc: bytes) -> bytes:
    """A resource of Photoshop with the IPTC."""
    return _RESOURCE + _IIM.to_bytes(2) + bytes(2) + len(iptc).to_bytes(4) + iptc + bytes(len(iptc) % 2)


def has_position(iptc: bytes) -> bool:
    """Whether the IPTC names a place."""
    return any(record == _APPLICATION and number in _PLACES for record, number, _, _ in _datasets(iptc))


def safe_part(iptc: bytes) -> bytes | None:
    """The datasets that are safe to publish: captions, authors, rights and dates. None if there are none."""
    datasets = list(_datasets(iptc))
    kept = [one for one in datasets if one.record == _APPLICATION and one.number in _SAFE]
    encoding = [one for one in datasets if (one.record, one.number) == (_ENVELOPE, _CHARACTERS)]
    return b"".join(one.data for one in (*encoding, *kept)) if any(one.number for one in kept) else None


def properties(iptc: bytes) -> dict[str, list[str]]:
    """The values as properties of XMP, by prefix and name."""
    found: dict[str, list[str]] = {}
    datasets = list(_datasets(iptc))
    is_utf_8 = any((one.record, one.number, one.value) == (_ENVELOPE, _CHARACTERS, _UTF_8) for one in datasets)
    for record, number, value, _ in datasets:
        if record == _APPLICATION and number in _PROPERTIES and value:
            text = decode(value, "replace" if is_utf_8 else "strict")
            if number == _DATE and len(text) == 8:
                text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
            found.setdefault(_PROPERTIES[number], []).append(text)
    return found


def decode(value: bytes, errors: str = "strict") -> str:
    """A text in UTF-8, or else in Latin-1."""
    try:
        return value.decode("utf-8", errors)
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _datasets(iptc: bytes) -> Iterator[_Dataset]:
    """The datasets, up to the first invalid one."""
    start = 0
    while start + 5 <= len(iptc) and iptc[start] == _MARKER:
        size = int.from_bytes(iptc[start + 3 : start + 5])
        content = start + 5
        if size & _EXTENDED:
            content += min(size & ~_EXTENDED, 4)
            size = int.from_bytes(iptc[start + 5 : content])
        end = content + size
        if end > len(iptc):
            return
        yield _Dataset(iptc[start + 1], iptc[start + 2], iptc[content:end], iptc[start:end])
        start = end
