"""PNG, still and animated: 8 bits per sample are read through Pillow, 16 through libpng."""

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from PIL import Image
from PIL.PngImagePlugin import Disposal

from engine import (
    MAX_FRAMES,
    RASTER,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    Primaries,
    Raster,
    Signature,
    conversion,
    ends_with,
    lazy_imports,
)
from engine.option_types import Pages
from plugins._color import cicp
from plugins._metadata import exif_data
from plugins._pixels import animations, pillow, png_chunks, png_encoder
from plugins._pixels.animations import Block

with lazy_imports():
    import imagecodecs

PNG = FileFormat(
    "png",
    media_type="image/png",
    extensions=("png", "apng"),
    sniff=Signature((0, png_chunks.SIGNATURE)),
    animated=True,
    is_complete=ends_with(b"IEND\xaeB`\x82"),
)

_MODES = {1: "L", 2: "LA", 3: "RGB", 4: "RGBA"}
_APPLE = b"CgBI"  # first in a variant: pixels are blue, green, red, multiplied by alpha, without header and checksum
_SIZE = 16  # offset of width and height
_DEPTH = 24  # offset of the bits per sample, before the color type
# Color types.
_GRAY = 0
_GRAY_ALPHA = 4
_RGB_ALPHA = 6
_DEFAULT_UNITS = 100  # of the duration of a frame, in a second
METADATA_CHUNKS = frozenset({b"eXIf", b"iTXt", b"tEXt", b"zTXt"})
"""The types of chunks with EXIF, XMP and texts."""
_ANIMATION_CHUNKS = frozenset({b"acTL", b"fcTL"})
_SHARED_CHUNKS = frozenset({b"PLTE", b"tRNS"})
_NEEDED_CHUNKS = frozenset({b"IHDR", b"PLTE"})
_NO_PIXELS = bytes(4) + b"IDAT" + zlib.crc32(b"IDAT").to_bytes(4)
# Chunks that describe colors, with the size of their content.
_COLOR_CHUNKS: Mapping[bytes, int | None] = MappingProxyType(
    {b"cICP": 4, b"iCCP": None, b"sRGB": 1, b"gAMA": 4, b"cHRM": 32, b"mDCV": 24, b"cLLI": 8}
)
_ZLIB_HEADER = 2  # bytes
_PART = 1 << 16  # bytes that are decompressed at a time
_FIXED_POINT = 100_000  # gAMA, cHRM
_SRGB_GAMMA = 0.45455
_MIN_GAMMA = 0.1
_TOLERANCE = 0.005


def _is_deep(content: bytes) -> bool:
    return content[_DEPTH : _DEPTH + 1] == b"\x10"


@conversion(PNG, RASTER, cost=2)
def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
    is_apple = data[12:16] == _APPLE
    data = _without_damaged_chunks(_with_checksum(data) if is_apple else data)
    image = _open(data)
    kinds = [kind for kind, _ in png_chunks.read_chunks(memoryview(data))]
    # Pillow reads metadata after the pixels only by decoding them.
    if b"IDAT" in kinds and not METADATA_CHUNKS.isdisjoint(kinds[kinds.index(b"IDAT") :]):
        image = _load(image, data)
    depth, color_type = data[_DEPTH : _DEPTH + 2]
    if _ANIMATION_CHUNKS.issubset(kinds) and (blocks := _read_blocks(data)):
        if _is_deep(data):
            FidelityWarning.issue("depth_reduced", "Animations are converted with 8 bits per sample.")
        return _with_colors(animations.to_raster(image, blocks, pages), data)
    raster = pillow.to_raster(image, pillow.select([0], pages))
    raster = replace(raster, frames=_read_still(raster, image, data))
    raster = raster.map(_from_apple) if is_apple else raster
    if _is_deep(data):
        raster = replace(raster, deep_frames=_decode_deep(data, image))
        # Gray with alpha is RGBA for Pillow, which a gray profile does not fit; and it compares 8 bits with the
        # transparent color, which has 16.
        if color_type == _GRAY_ALPHA or "transparency" in image.info:
            mode = "LA" if color_type in (_GRAY, _GRAY_ALPHA) else "RGBA"
            reduced = (replace(frame, pixels=frame.image) for frame in _decode_deep(data, image))
            raster = replace(raster, frames=reduced, sample=pillow.sample(mode, image.info.get("icc_profile")))
    if color_type == _GRAY and depth < 8:
        raster = replace(raster, source=replace(raster.source, bit_depth=depth))
    return _with_colors(raster, data)


def _open(data: bytes) -> Image.Image:
    image = pillow.open_image(data, "PNG")
    depth, color_type = data[_DEPTH : _DEPTH + 2]
    # Pillow scales the samples of gray, but not the transparent one.
    if color_type == _GRAY and 1 < depth < 8 and "transparency" in image.info:
        image.info["transparency"] *= 255 // ((1 << depth) - 1)
    return image


def _read_still(raster: Raster, image: Image.Image, data: bytes) -> Iterator[Frame]:
    loaded = _load(image, data)
    loaded.info = image.info
    yield from raster.frames if loaded is image else pillow.to_raster(loaded, [0]).frames


def _load(image: Image.Image, data: bytes) -> Image.Image:
    """The image with its pixels. Raises OSError, and zlib.error and ValueError if more than their checksum is wrong."""
    try:
        image.load()
    except OSError:
        image = _open(_with_checksum(data))
        image.load()
    return image


def _with_checksum(data: bytes) -> bytes:
    """The file whose pixels have the right header and checksum of zlib. Issues a FidelityWarning.

    Raises zlib.error or ValueError if the pixels are damaged or truncated.
    """
    chunks = list(png_chunks.read_chunks(memoryview(data)))
    first = [kind for kind, _ in chunks].index(b"IDAT")
    stream = b"".join(chunk[8:-4] for kind, chunk in chunks if kind == b"IDAT")
    stream = stream if chunks[0][0] == _APPLE else stream[_ZLIB_HEADER:]
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    checksum = zlib.adler32(b"")
    for start in range(0, len(stream), _PART):
        checksum = zlib.adler32(inflate.decompress(stream[start : start + _PART]), checksum)
    if not inflate.eof:
        raise ValueError("The pixels are truncated.")
    FidelityWarning.issue("repaired", "The PNG has no valid checksum of its pixels, which were read without it.")
    stream = b"\x78\x9c" + stream[: len(stream) - len(inflate.unused_data)] + checksum.to_bytes(4)
    chunks[first] = (b"", memoryview(png_chunks.chunk(b"IDAT", stream)))
    return png_chunks.SIGNATURE + b"".join(chunk for kind, chunk in chunks if kind not in (b"IDAT", _APPLE))


def _from_apple(frame: Frame) -> Frame:
    blue, green, red, *alpha = frame.image.split()
    image = Image.merge("RGBa" if alpha else "RGB", (red, green, blue, *alpha))
    return replace(frame, pixels=image.convert("RGBA") if alpha else image)


def _read_blocks(data: bytes) -> list[Block]:
    """The frames of an animation, empty if it has none. Raises CorruptInput."""
    chunks = list(png_chunks.read_chunks(memoryview(data)))
    kinds = [kind for kind, _ in chunks]
    count = min(int.from_bytes(chunks[kinds.index(b"acTL")][1][8:12]), MAX_FRAMES + 1)
    # The image before the first fcTL, for readers without animation, is not a frame.
    if count == 0 or (count == 1 and kinds.index(b"fcTL") < kinds.index(b"IDAT")):
        return []
    numbers = [int.from_bytes(chunk[8:12]) for kind, chunk in chunks if kind in (b"fcTL", b"fdAT")]
    found: list[tuple[memoryview, list[memoryview]]] = []
    for kind, chunk in chunks:
        if kind == b"fcTL":
            found.append((chunk[12:-4], []))
        elif found and kind in (b"IDAT", b"fdAT"):
            found[-1][1].append(chunk[12 if kind == b"fdAT" else 8 : -4])
    if len(found) < count or not all(parts for _, parts in found) or numbers != list(range(len(numbers))):
        raise CorruptInput("Frames of the animation are missing or out of order.")
    shared = b"".join(chunk for kind, chunk in chunks if kind in _SHARED_CHUNKS)
    return [_block(data, shared, *one) for one in found[:count]]


def _block(data: bytes, shared: bytes, control: memoryview, parts: list[memoryview]) -> Block:
    """A frame from its control chunk and the parts of its compressed pixels; it also needs the `shared` chunks."""
    width, height, left, top, delay, units, disposal, blend = struct.unpack(">4I2H2B", control)
    canvas = struct.unpack_from(">2I", data, _SIZE)
    if not width or not height or left + width > canvas[0] or top + height > canvas[1]:
        raise CorruptInput("A frame of the animation is empty or beyond the image.")
    color_type = data[_DEPTH + 1]

    def decode() -> Image.Image:
        header = png_chunks.chunk(b"IHDR", struct.pack(">2I", width, height) + data[_DEPTH : _DEPTH + 5])
        pixels = png_chunks.chunk(b"IDAT", b"".join(parts))
        image = _open(b"".join([png_chunks.SIGNATURE, header, shared, pixels]))
        image.load()
        return image

    return Block(
        (left, top, left + width, top + height),
        decode,
        delay * 1000 / (units or _DEFAULT_UNITS),
        Disposal(disposal),
        gray=color_type in (_GRAY, _GRAY_ALPHA),
        opaque=color_type not in (_GRAY_ALPHA, _RGB_ALPHA) and b"tRNS" not in shared,
        over=blend != 0,
    )


def _without_damaged_chunks(data: bytes) -> bytes:
    """The file without the chunks that readers may skip and Pillow cannot read. Issues a FidelityWarning for them."""
    chunks = list(png_chunks.read_chunks(memoryview(data)))
    optional = [index for index, (kind, _) in enumerate(chunks) if _may_skip(kind)]
    if not optional and _ANIMATION_CHUNKS.isdisjoint(kind for kind, _ in chunks):
        return data
    needed = [bytes(chunk) for kind, chunk in chunks if kind in _NEEDED_CHUNKS]

    def header(blocks: Sequence[bytes]) -> bytes:
        return b"".join([png_chunks.SIGNATURE, *needed, *blocks, _NO_PIXELS])

    found = pillow.damaged_blocks("PNG", [bytes(chunks[index][1]) for index in optional], header)
    left_out = {optional[index] for index in found}
    kinds = {kind for index, (kind, _) in enumerate(chunks) if index not in left_out}
    if len(kinds & _ANIMATION_CHUNKS) == 1:  # an animation has a header, and one for each frame
        left_out |= {index for index, (kind, _) in enumerate(chunks) if kind in {*_ANIMATION_CHUNKS, b"fdAT"}}
    if not left_out:
        return data
    pillow.warn_damaged()
    kept = (chunk for index, (_, chunk) in enumerate(chunks) if index not in left_out)
    return b"".join([png_chunks.SIGNATURE, *kept])


def _may_skip(kind: bytes) -> bool:
    """Whether a chunk is ancillary, as the case of its first character shows, and no part of a frame."""
    return kind[:1].islower() and kind not in (b"fcTL", b"fdAT")


def _with_colors(raster: Raster, data: bytes) -> Raster:
    """The raster with the colors of its chunks: cICP has precedence over iCCP, sRGB, and gAMA with cHRM, in this order.

    HDR stays as it is, other colors become a profile.
    """
    chunks = _color_chunks(data)
    primaries, transfer, matrix, _ = chunks.get(b"cICP", bytes(4))
    if matrix == png_encoder.RGB and cicp.are_known(primaries, transfer):
        levels = struct.unpack(">2I", chunks.get(b"cLLI", bytes(8)))
        light_levels = (
            (levels[0] / png_encoder.LUMINANCE_UNITS, levels[1] / png_encoder.LUMINANCE_UNITS) if any(levels) else None
        )
        return cicp.with_colors(raster, primaries, transfer, light_levels, chunks.get(b"mDCV"))
    measured = None if chunks.keys() & {b"iCCP", b"sRGB"} else _read_gamma(chunks)
    return raster if measured is None else cicp.with_profile(raster, measured)


def _color_chunks(data: bytes) -> dict[bytes, bytes]:
    """The content of the chunks that describe colors, by type, if it has the right size."""
    found: dict[bytes, bytes] = {}
    for kind, chunk in png_chunks.read_chunks(memoryview(data)):
        if kind == b"IDAT":
            break
        if kind in _COLOR_CHUNKS and _COLOR_CHUNKS[kind] in (None, len(chunk) - 12):
            found.setdefault(kind, bytes(chunk[8:-4]))
    return found


def _read_gamma(chunks: Mapping[bytes, bytes]) -> tuple[Primaries, cicp.Curve] | None:
    """The colors that gAMA and cHRM describe. None if they are invalid or sRGB."""
    encoding = int.from_bytes(chunks.get(b"gAMA", b"")) / _FIXED_POINT
    if not _MIN_GAMMA <= encoding <= 1 / _MIN_GAMMA:
        return None
    primaries = cicp.SRGB
    if b"cHRM" in chunks:
        primaries = tuple(value / _FIXED_POINT for value in struct.unpack(">8I", chunks[b"cHRM"]))
        if not cicp.are_valid(primaries):
            return None
    values = zip((encoding, *primaries), (_SRGB_GAMMA, *cicp.SRGB), strict=True)
    if all(abs(value - expected) < _TOLERANCE for value, expected in values):
        return None
    return primaries, cicp.gamma(1 / encoding)


def _decode_deep(data: bytes, header: Image.Image) -> Iterator[Frame]:
    try:
        array = imagecodecs.png_decode(data)
    except imagecodecs.PngError:
        array = imagecodecs.png_decode(_with_checksum(data))
    array = pillow.apply_orientation(array, exif_data.read_orientation(header))
    bands = array.shape[2] if array.ndim == 3 else 1
    yield Frame(DeepPixels(array, _MODES[bands]), header.info.get("icc_profile"))


encode = conversion(RASTER, PNG, cost=5, memory=20, capabilities=png_encoder.capabilities)(png_encoder.encode)
