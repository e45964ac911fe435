"""The numbers of gain maps: as ISO 21496-1 has them in files, in XMP of Adobe and Google, and of Apple."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from fractions import Fraction

from PIL import Image

from engine import Frame, GainMap, GainMapNumbers, Size

_ADOBE = b"http://ns.adobe.com/hdr-gain-map/1.0/"
_APPLE_HEADROOM = re.compile(rb"HDRGainMapHeadroom(?:=[\"']|>)([0-9.]+)")
_NUMBER = re.compile(rb"[-+]?[0-9.]+(?:[eE][-+]?[0-9]+)?")
_LARGEST = 64.0  # Limit of any number: no image has a factor of 2 ** 64.
_DENOMINATOR = 1_000_000
# Flags.
_BANDS = 0x80
_BASE_COLORS = 0x40
_COMMON_DENOMINATOR = 0x08


def made(
    image: Image.Image, numbers: GainMapNumbers | None, size: Size, profile: bytes | None = None
) -> GainMap | None:
    """The gain map of an image of `size`, as it is stored. None without valid numbers."""
    if numbers is None or not _are_valid(numbers):
        return None
    image = image if image.mode in ("L", "RGB") else image.convert("RGB")
    return GainMap(Frame(image, profile, full_size=size), numbers)


def _are_valid(numbers: GainMapNumbers) -> bool:
    values = [*numbers.minimum, *numbers.maximum, *numbers.base_offset, *numbers.other_offset, *numbers[5:7]]
    return all(abs(value) <= _LARGEST for value in values) and all(0 < value <= _LARGEST for value in numbers.gamma)


def from_xmp(packet: bytes) -> GainMapNumbers | None:
    """The numbers in XMP of Adobe. None without, and for a map that makes an image of HDR darker."""
    if _ADOBE not in packet or b"True" in _values(packet, "BaseRenditionIsHDR"):
        return None

    def read(name: str, default: float) -> tuple[float, ...]:
        found = tuple(float(number) for number in _NUMBER.findall(_values(packet, name)))
        return found if len(found) in (1, 3) else (default,)

    try:
        (low, *_) = read("HDRCapacityMin", 0)
        (high, *_) = read("HDRCapacityMax", math.nan)
        bands = read("GainMapMin", 0), read("GainMapMax", math.nan), read("Gamma", 1)
        return GainMapNumbers(*bands, read("OffsetSDR", 1 / 64), read("OffsetHDR", 1 / 64), low, high)
    except ValueError:
        return None


def _values(packet: bytes, name: str) -> bytes:
    """The text of an attribute or an element; of a list, the entries."""
    key = name.encode()
    attribute = rb"hdrgm:%b\s*=\s*[\"']([^\"']*)" % key
    element = rb"<hdrgm:%b\b[^<>]*>(.*?)(?:</hdrgm:%b>|\Z)" % (key, key)
    found = re.search(attribute + b"|" + element, packet, re.DOTALL)
    return re.sub(rb"<[^>]*>", b" ", found[1] or found[2] or b"") if found else b""


def to_xmp(gain_map: GainMap) -> bytes:
    """XMP of Adobe for the file of a gain map."""

    def written(values: Sequence[float]) -> str:
        return "<rdf:Seq>" + "".join(f"<rdf:li>{value:.6f}</rdf:li>" for value in values) + "</rdf:Seq>"

    numbers = gain_map.numbers
    lists = {
        "GainMapMin": numbers.minimum,
        "GainMapMax": numbers.maximum,
        "Gamma": numbers.gamma,
        "OffsetSDR": numbers.base_offset,
        "OffsetHDR": numbers.other_offset,
    }
    single = {name: values[0] for name, values in lists.items() if len(values) == 1}
    single |= {"HDRCapacityMin": numbers.base_headroom, "HDRCapacityMax": numbers.other_headroom}
    attributes = "".join(f' hdrgm:{name}="{value:.6f}"' for name, value in single.items())
    elements = "".join(
        f"<hdrgm:{name}>{written(values)}</hdrgm:{name}>" for name, values in lists.items() if len(values) > 1
    )
    return (
        '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
        f'<rdf:Description rdf:about="" xmlns:hdrgm="{_ADOBE.decode()}" hdrgm:Version="1.0"'
        f' hdrgm:BaseRenditionIsHDR="False"{attributes}>{elements}</rdf:Description></rdf:RDF></x:xmpmeta>'
    ).encode()


def from_iso(data: bytes) -> GainMapNumbers | None:
    """The numbers as ISO 21496-1 has them. None if they are invalid, or of a later version."""
    try:
        minimum_version, _, flags = struct.unpack_from(">HHB", data)
        if minimum_version:
            return None
        values = list(_fractions(data[5:], common=bool(flags & _COMMON_DENOMINATOR)))
        bands = 3 if flags & _BANDS else 1
        rows = [values[2 + 5 * band : 7 + 5 * band] for band in range(bands)]
        minimum, maximum, gamma, base_offset, other_offset = zip(*rows, strict=True)
        return GainMapNumbers(
            minimum=minimum,
            maximum=maximum,
            gamma=gamma,
            base_offset=base_offset,
            other_offset=other_offset,
            base_headroom=values[0],
            other_headroom=values[1],
            uses_base_colors=bool(flags & _BASE_COLORS),
        )
    except (struct.error, ZeroDivisionError, ValueError, IndexError, TypeError):
        return None


_SIGNED = (False, False, True, True, False, True, True)  # headrooms; minimum, maximum, gamma and offsets of a band


def _fractions(data: bytes, *, common: bool) -> Iterator[float]:
    """The headrooms, then the numbers of each band."""
    denominator = struct.unpack_from(">I", data)[0] if common else 0
    offset = 4 if common else 0
    index = 0
    while offset + (4 if common else 8) <= len(data):
        kind = _SIGNED[index if index < 2 else 2 + (index - 2) % 5]
        numerator = struct.unpack_from(">i" if kind else ">I", data, offset)[0]
        below = denominator if common else struct.unpack_from(">I", data, offset + 4)[0]
        yield numerator / below
        offset = offset + (4 if common else 8)
        index = index + 1


def to_iso(gain_map: GainMap) -> bytes:
    """The numbers as ISO 21496-1 has them."""
    numbers = gain_map.numbers
    lists = numbers[:5]
    bands = max(len(values) for values in lists)
    flags = (_BANDS if bands == 3 else 0) | (_BASE_COLORS if numbers.uses_base_colors else 0)
    ordered = [values[band % len(values)] for band in range(bands) for values in lists]
    fractions = [_fraction(value) for value in (numbers.base_headroom, numbers.other_headroom, *ordered)]
    return struct.pack(">HHB", 0, 0, flags) + b"".join(
        numerator.to_bytes(4, signed=numerator < 0) + denominator.to_bytes(4) for numerator, denominator in fractions
    )


def _fraction(value: float) -> tuple[int, int]:
    limited = Fraction(value).limit_denominator(_DENOMINATOR)
    return limited.numerator, limited.denominator


def from_apple(image: Image.Image, packet: bytes, size: Size) -> GainMap | None:
    """The gain map of an iPhone, whose samples are no logarithms. None without headroom."""
    found = _APPLE_HEADROOM.search(packet)
    headroom = float(found[1]) if found else 0.0
    if not 1 < headroom < _LARGEST:
        return None
    largest = math.log2(headroom)
    table = [round(255 * math.log2(1 + (headroom - 1) * _light(value / 255)) / largest) for value in range(256)]
    numbers = GainMapNumbers(
        minimum=(0.0,),
        maximum=(largest,),
        gamma=(1.0,),
        base_offset=(0.0,),
        other_offset=(0.0,),
        base_headroom=0.0,
        other_headroom=largest,
    )
    return made(image.convert("L").point(table), numbers, size)


def _light(encoded: float) -> float:
    """The light of a sample, by the curve of sRGB."""
    return encoded / 12.92 if encoded <= 0.04045 else float(((encoded + 0.055) / 1.055) ** 2.4)
