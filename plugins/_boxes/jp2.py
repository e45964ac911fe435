"""The boxes of JPEG 2000 files and the header of their codestream (ISO/IEC 15444-1), read and written."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from engine import Content, CorruptInput, ImageMetadata, Raster, Size, check_size
from plugins._boxes import heif
from plugins._metadata import exif_data
from plugins._pixels import pillow

SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
CODESTREAM = b"\xff\x4f\xff\x51"
# Enumerated color spaces.
SRGB = 16
GRAY = 17
CMYK = 12
# Markers.
_SIZ = 0xFF51
_COD = 0xFF52
_SOT = 0xFF90
_EOC = 0xFFD9
_REVERSIBLE = 1  # the wavelet
_MAX_CHANNELS = 5  # four inks and transparency
# How the box colr describes colors.
_ENUMERATED = 1
_PROFILE = 2
_COLORS = 3  # bytes of colr before the color space or the profile
# Kinds of channels, and what they are for.
_COLOR = 0
_OPACITY = 1
_PREMULTIPLIED = 2
_WHOLE_IMAGE = 0
_METER = 39.3701  # inches
_RESOLUTION = struct.Struct(">HHHHbb")  # down and across in dots per meter: numerators, denominators, exponents
_UUIDS: Mapping[str, bytes] = MappingProxyType(
    {
        "exif": b"JpgTiffExif->JP2",
        "xmp": bytes.fromhex("be7acfcb97a942e89c71999491e3afac"),
        "iptc": bytes.fromhex("33c7a4d2b81d4723a0baf1a3e097ad38"),
    }
)
_NUMBER = 4  # bytes
EXCHANGED = 5  # the first EXIF orientation that exchanges width and height
_PLAIN = frozenset({b"jP  ", b"ftyp", b"jp2h", b"jp2c", b"rreq", b"free"})  # boxes without metadata


class Depth(NamedTuple):
    """The samples of a channel."""

    bits: int
    signed: bool

    @classmethod
    def of(cls, field: int) -> Depth:
        """From the field of a header, which has the sign in its highest bit."""
        return cls(1 + (field & 0x7F), field > 0x7F)


@dataclass(frozen=True)
class Header:
    """The pixels as a file describes them. `depths` has an entry per decoded channel, colors first.

    `color_space` is enumerated, and None if it is unknown or a profile is given. `opacity` is the index of the channel
    with the transparency, None without; its colors are multiplied by it if `premultiplied`. `is_plain`: the channels
    are those of the codestream, in their order.
    """

    size: Size
    depths: tuple[Depth, ...]
    subsampled: bool
    reversible: bool
    color_space: int | None = None
    profile: bytes | None = None
    opacity: int | None = None
    premultiplied: bool = False
    is_plain: bool = True


def read_header(data: bytes) -> Header:
    """Reads a file or a codestream. Raises CorruptInput for a damaged or truncated one, TooLarge."""
    codestream = _Codestream.find(data)
    if data.startswith(CODESTREAM):
        opacity = {2: 1, 4: 3}.get(len(codestream.depths))
        return Header(codestream.size, codestream.depths, codestream.subsampled, codestream.reversible, opacity=opacity)
    palette = _palette_depths(data)
    depths = palette or codestream.depths
    color_space, profile = _read_colors(data)
    order = list(range(len(depths)))
    opacity, premultiplied = _read_opacity(data, order, color_space, profile)
    return Header(
        size=codestream.size,
        depths=tuple(depths[index] for index in order),
        subsampled=codestream.subsampled,
        reversible=codestream.reversible,
        color_space=color_space,
        profile=profile,
        opacity=opacity,
        premultiplied=premultiplied,
        is_plain=not palette and order == sorted(order),
    )


@dataclass(frozen=True)
class _Codestream:
    size: Size
    depths: tuple[Depth, ...]
    subsampled: bool
    reversible: bool

    @classmethod
    def find(cls, data: bytes) -> _Codestream:
        """The first codestream of a file. Raises CorruptInput, TooLarge."""
        if data.startswith(CODESTREAM):
            start, end = 0, len(data)
        else:
            box = heif.find(data, b"jp2c")
            if box is None:
                raise CorruptInput("The file has no complete codestream.")
            start, end = box.content, box.end
        try:
            return cls._read(data, start, end)
        except struct.error as error:
            raise CorruptInput("The codestream is damaged or truncated.") from error

    @classmethod
    def _read(cls, data: bytes, start: int, end: int) -> _Codestream:
        marker, _, _, right, bottom, left, top = struct.unpack_from(">3H4I", data, start + 2)
        (count,) = struct.unpack_from(">H", data, start + 40)
        width, height = right - left, bottom - top
        if marker != _SIZ or width < 1 or height < 1 or not 1 <= count <= _MAX_CHANNELS:
            raise CorruptInput(f"The codestream has {width} x {height} pixels of {count} channels.")
        check_size(width, height)
        channels = [struct.unpack_from(">3B", data, start + 42 + 3 * index) for index in range(count)]
        depths = tuple(Depth.of(depth) for depth, _, _ in channels)
        subsampled = any(steps != [1, 1] for _, *steps in channels)
        return cls((width, height), depths, subsampled, _check_parts(data, start + 2, end))


def _check_parts(data: bytes, offset: int, end: int) -> bool:
    """Whether the wavelet is reversible. Raises CorruptInput if parts of the codestream or its end are missing."""
    reversible = False
    while offset + 2 <= end:
        (marker,) = struct.unpack_from(">H", data, offset)
        if marker == _EOC:
            return reversible
        if marker == _SOT:
            _, _, _, size = struct.unpack_from(">3HI", data, offset)
            if size == 0 and data[end - 2 : end] == _EOC.to_bytes(2):  # the last part, up to the end
                return reversible
            if size < 12:
                break
        else:
            size = 2 + struct.unpack_from(">H", data, offset + 2)[0]
            reversible = data[offset + 13] == _REVERSIBLE if marker == _COD else reversible
        offset += size
    raise CorruptInput("The codestream is damaged or truncated.")


def _content(data: bytes, *path: bytes) -> bytes:
    """The content of the first box at a path. Empty without one."""
    box = heif.find(data, *path)
    return data[box.content : box.end] if box else b""


def _palette_depths(data: bytes) -> tuple[Depth, ...]:
    """The depths of the columns of the palette; empty without one."""
    palette = _content(data, b"jp2h", b"pclr")
    return tuple(map(Depth.of, palette[3 : 3 + palette[2]])) if palette[3:] else ()


def _read_colors(data: bytes) -> tuple[int | None, bytes | None]:
    """The enumerated color space, or the profile, of the first description of colors that is one of both."""
    header = heif.find(data, b"jp2h")
    boxes = heif.children(data, header) if header else ()
    for content in (data[box.content : box.end] for box in boxes if box.kind == b"colr"):
        if content[:1] == bytes([_ENUMERATED]) and len(content) >= _COLORS + _NUMBER:
            return int.from_bytes(content[_COLORS : _COLORS + _NUMBER]), None
        if content[:1] in (bytes([_PROFILE]), bytes([_PROFILE + 1])):
            return None, content[_COLORS:]
    return None, None


def _read_opacity(
    data: bytes, order: list[int], color_space: int | None, profile: bytes | None
) -> tuple[int | None, bool]:
    """The index of the channel with the transparency, and whether the colors are multiplied by it.

    Exchanges the channels in `order` as OpenJPEG does, so that the colors come first.
    """
    content = _content(data, b"jp2h", b"cdef")[2:]
    definitions = list(struct.iter_unpack(">3H", content[: len(content) // 6 * 6]))
    for index, kind, color in definitions:
        if kind == _COLOR and 0 < color <= len(order) and index in order:
            current = order.index(index)
            order[current], order[color - 1] = order[color - 1], order[current]
    for index, kind, purpose in definitions:
        if kind in (_OPACITY, _PREMULTIPLIED) and purpose == _WHOLE_IMAGE and index in order:
            return order.index(index), kind == _PREMULTIPLIED
    inks = color_space == CMYK or (profile or b"")[16:20] == b"CMYK"
    last = {2: 1, 4: None if inks else 3, 5: 4}.get(len(order))
    return None if definitions else last, False


def with_metadata(raster: Raster, data: bytes) -> Raster:
    """The raster with the metadata and the resolution of a file. The pixels are not turned."""
    exif = _read_exif(data)
    dpi = _read_dpi(data)
    return replace(
        raster,
        metadata=ImageMetadata(
            exif=exif and exif_data.upright(exif),
            xmp=pillow.upright_xmp(_read_metadata(data, "xmp")),
            iptc=_read_metadata(data, "iptc"),
        ),
        dpi=dpi[::-1] if dpi and read_orientation(data) >= EXCHANGED else dpi,
        source=replace(
            raster.source,
            turned=read_orientation(data) > 1,
            bare={box.kind for box in heif.boxes(data)} <= _PLAIN,
        ),
    )


def read_orientation(data: bytes) -> int:
    """The EXIF orientation, 1 to 8; 1 without."""
    return exif_data.orientation_of(_read_exif(data))


def _read_exif(data: bytes) -> bytes | None:
    content = _read_metadata(data, "exif")
    return content and exif_data.PREFIX + content.removeprefix(exif_data.PREFIX)


def _read_metadata(data: bytes, kind: str) -> bytes | None:
    """The block of the first box of this kind of metadata."""
    contents = (data[box.content : box.end] for box in heif.boxes(data) if box.kind == b"uuid")
    return next((content[16:] for content in contents if content.startswith(_UUIDS[kind])), None) or None


def _read_dpi(data: bytes) -> tuple[float, float] | None:
    for kind in (b"resc", b"resd"):  # resolution of the capture, resolution of the display
        content = _content(data, b"jp2h", b"res ", kind)
        if len(content) >= _RESOLUTION.size:
            down, down_divisor, across, across_divisor, down_exponent, across_exponent = _RESOLUTION.unpack_from(
                content
            )
            if across_divisor and down_divisor:
                horizontal = across / across_divisor * 10.0**across_exponent / _METER
                return pillow.plausible_dpi((horizontal, down / down_divisor * 10.0**down_exponent / _METER))
    return None


def is_complete(content: Content) -> bool:
    """An `is_complete` of files and codestreams."""
    try:
        _Codestream.find(content[:])
    except CorruptInput:
        return False
    return True


def write(codestream: bytes, brand: bytes, raster: Raster, mode: str, bits: int, profile: bytes | None) -> bytes:
    """A file with the codestream of an image of `mode`, and with the metadata of the raster."""
    (width, height) = _Codestream.find(codestream).size
    channels = len(mode)
    color_space = CMYK if mode == "CMYK" else SRGB if mode.startswith("RGB") else GRAY
    description = bytes([_ENUMERATED, 0, 0]) + struct.pack(">I", color_space)
    header = [
        _box(b"ihdr", struct.pack(">2IH4B", height, width, channels, bits - 1, 7, 0, 0)),
        _box(b"colr", bytes([_PROFILE, 0, 0]) + profile if profile else description),
    ]
    if mode in ("LA", "RGBA"):
        colors = [(index, 0, index + 1) for index in range(channels - 1)]
        definitions = [*colors, (channels - 1, _OPACITY, _WHOLE_IMAGE)]
        entries = b"".join(struct.pack(">3H", *definition) for definition in definitions)
        header.append(_box(b"cdef", struct.pack(">H", channels) + entries))
    if raster.dpi:
        across, down = (round(dpi * _METER) for dpi in raster.dpi)
        exponent = 0 if max(across, down) < 1 << 16 else 1
        across, down = across // 10**exponent, down // 10**exponent
        header.append(_box(b"res ", _box(b"resc", _RESOLUTION.pack(down, 1, across, 1, exponent, exponent))))
    parts = [
        SIGNATURE,
        _box(b"ftyp", brand + bytes(4) + brand),
        _box(b"jp2h", b"".join(header)),
        *(_box(b"uuid", _UUIDS[name] + content) for name, content in _metadata(raster)),
        _box(b"jp2c", codestream),
    ]
    return b"".join(parts)


def _metadata(raster: Raster) -> Iterator[tuple[str, bytes]]:
    metadata = raster.metadata
    blocks = {
        "exif": metadata.exif and metadata.exif.removeprefix(exif_data.PREFIX),
        "xmp": metadata.xmp,
        "iptc": metadata.iptc,
    }
    yield from ((name, block) for name, block in blocks.items() if block)


def _box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content
