"""The formats of Netpbm: PBM, PGM, PPM and PAM with 1 to 16 bits per sample, and PFM with floats."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    Content,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    ImageMetadata,
    ImageSource,
    Raster,
    Signature,
    Sniffer,
    TargetCapabilities,
    any_of,
    check_size,
    color,
    conversion,
    hookimpl,
    lazy_imports,
)
from engine.option_types import Exposure
from plugins._pixels import linear_light, sample_arrays

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np

MODULES = ("numpy", "imagecodecs._cms")
_MAX_HEADER = 1 << 14  # bytes
_MAX_VALUE = 65535
_GAP = rb"(?:\s|#[^\r\n]*[\r\n])+"  # white space and comments
_BITMAP_HEADER = re.compile(rb"P[14]" + (_GAP + rb"(\d{1,9})") * 2)
_HEADER = re.compile(rb"P[2356]" + (_GAP + rb"(\d{1,9})") * 3)
_FLOAT_HEADER = re.compile(rb"P[FfHh]\s+(\d{1,9})\s+(\d{1,9})\s+(-?)[\d.]+(?:[eE][-+]?\d+)?")
_ARBITRARY_HEADER = re.compile(rb"P7[ \t]*\n(.*?\n)?[ \t]*ENDHDR[ \t]*(?=\n)", re.DOTALL)
_START = re.compile(rb"P[1-7][\s#]")
_COMMENT = re.compile(rb"#([^\r\n]*)")
_NO_SAMPLE = b"\n-9"  # without it, NumPy returns uninitialized memory for missing samples
_PLAIN = b"123"  # the kinds whose samples are text
_MODES = MappingProxyType({1: "L", 2: "LA", 3: "RGB", 4: "RGBA"})  # by number of bands
_TUPLES = MappingProxyType({"L": "GRAYSCALE", "LA": "GRAYSCALE_ALPHA", "RGB": "RGB", "RGBA": "RGB_ALPHA"})


@dataclass(frozen=True)
class _Header:
    """What precedes the samples. `kind` is the second byte of the file, `maximum` the largest integer sample.

    `mode` is Pillow's. `order` is the byte order of floats, `end` the offset of the samples.
    """

    kind: bytes
    mode: str
    width: int
    height: int
    maximum: int
    end: int
    order: str = ">"
    comments: tuple[str, ...] = ()

    @property
    def stop(self) -> int:
        """The offset of what follows the integers, which can be another image."""
        bits = 1 if self.kind == b"4" else len(self.mode) * (8 if self.maximum < 256 else 16)
        return self.end + (self.width * bits + 7) // 8 * self.height


def _read_header(start: bytes) -> _Header | None:
    """The header of a file that begins with these bytes. None if it has none."""
    kind = start[1:2]
    if found := _ARBITRARY_HEADER.match(start):
        return _read_fields(found)
    if found := _FLOAT_HEADER.match(start):
        return _Header(
            kind,
            mode="RGB" if kind.isupper() else "L",
            width=int(found[1]),
            height=int(found[2]),
            maximum=1,
            end=found.end() + 1,
            order="<" if found[3] else ">",
        )
    if found := _BITMAP_HEADER.match(start) or _HEADER.match(start):
        width, height, maximum = (*map(int, found.groups()), 1)[:3]
        mode = "1" if kind in b"14" else "RGB" if kind in b"36" else "L"
        comments = tuple(one.decode("latin-1").strip() for one in _COMMENT.findall(found[0]))
        return _Header(kind, mode, width, height, maximum, found.end() + 1, comments=comments)
    return None


def _read_fields(found: re.Match[bytes]) -> _Header:
    """The header of a PAM file. Raises CorruptInput."""
    fields: dict[bytes, bytes] = {}
    for line in (found[1] or b"").splitlines():
        name, *value = line.split(None, 1)[:2] or (b"#",)
        fields.setdefault(name, *value or (b"",))
    try:
        width, height, bands, maximum = (int(fields[name]) for name in (b"WIDTH", b"HEIGHT", b"DEPTH", b"MAXVAL"))
        mode = "CMYK" if bands == 4 and fields.get(b"TUPLTYPE", b"").strip() == b"CMYK" else _MODES[bands]
    except (KeyError, ValueError) as error:
        raise CorruptInput("The header of the PAM file is invalid, or its number of samples unknown.") from error
    return _Header(b"7", mode, width, height, maximum, found.end() + 1)


def _sniffer(kinds: bytes) -> Sniffer:
    """A sniffer for files of these kinds with a header."""

    def sniff(content: Content) -> int:
        start = content[:3]
        if not (start[2:].isspace() or start[2:] == b"#"):
            return 0
        if start[:2] == b"P7":
            return 3 if b"WIDTH" in content[:_MAX_HEADER] else 0
        return 3 if _read_header(content[:_MAX_HEADER]) else 0

    return any_of(*(Signature((0, b"P" + bytes([kind])), then=sniff) for kind in kinds))


def _format(name: str, media_type: str, kinds: bytes, *others: str, bytes_per_pixel: float) -> FileFormat:
    sniff = _sniffer(kinds)
    return FileFormat(
        name, media_type=media_type, extensions=(name, *others), sniff=sniff, bytes_per_pixel=bytes_per_pixel
    )


PBM = _format("pbm", "image/x-portable-bitmap", b"14", bytes_per_pixel=0.12)
PGM = _format("pgm", "image/x-portable-graymap", b"25", bytes_per_pixel=1)
PPM = _format("ppm", "image/x-portable-pixmap", b"36", "pnm", bytes_per_pixel=3)
PAM = _format("pam", "image/x-portable-arbitrarymap", b"7", bytes_per_pixel=1)
PFM = _format("pfm", "image/x-portable-floatmap", b"FfHh", "phm", bytes_per_pixel=2)


def decode(data: bytes) -> Raster:
    header = _read_header(data[:_MAX_HEADER])
    if header is None or not 1 <= header.maximum <= _MAX_VALUE:
        raise CorruptInput("The header of the file is invalid.")
    if header.kind not in _PLAIN and _START.match(data, header.stop):
        FidelityWarning.issue("pictures_dropped", "Only the first image in the file was converted.")
    return sample_arrays.to_raster(
        lambda: _read_integers(data, header),
        (header.width, header.height),
        header.mode,
        deep=header.maximum > 255,
        metadata=ImageMetadata(text=tuple(("Comment", comment) for comment in header.comments)),
        source=ImageSource(bare=not header.comments),
    )


def _read_integers(data: bytes, header: _Header) -> Image.Image | DeepPixels:
    size = (header.width, header.height)
    mode = header.mode
    if header.kind == b"4":
        row = (header.width + 7) // 8
        return Image.frombytes(
            "1", size, sample_arrays.from_buffer(data, "u1", row * header.height, header.end), "raw", "1;I"
        )
    shape = (header.height, header.width) if len(mode) == 1 else (header.height, header.width, len(mode))
    count = int(np.prod(shape))
    if header.kind in _PLAIN:
        array = _parse(b"".join((memoryview(data)[header.end - 1 :], _NO_SAMPLE)), count, header)
    else:
        array = sample_arrays.from_buffer(data, ">u2" if header.maximum > 255 else "u1", count, header.end)
    array = array.reshape(shape)
    if mode == "1":
        return Image.fromarray(array == 0)
    if header.maximum > 255:
        samples = np.minimum(array, header.maximum).astype(np.uint16)
        return DeepPixels(
            samples if header.maximum == _MAX_VALUE else color.scale(samples, header.maximum, _MAX_VALUE), mode
        )
    if header.maximum < 255:
        array = color.scale(np.minimum(array, header.maximum), header.maximum, 255)
    return Image.fromarray(array.astype(np.uint8, copy=False), mode)


def _parse(text: bytes, count: int, header: _Header) -> NDArray[Any]:
    """The samples of a plain file, of which `text` ends with _NO_SAMPLE. Raises CorruptInput."""
    text = _COMMENT.sub(b" ", text) if b"#" in text else text
    if header.mode == "1":  # white space between digits is optional
        digits = np.frombuffer(text, np.uint8)
        digits = digits[(digits == ord("0")) | (digits == ord("1"))] - ord("0")
    else:
        digits = np.fromstring(text, np.int32, count, sep=" ")
    if len(digits) < count:
        raise CorruptInput("The file is truncated.")
    array = digits[:count]
    if array.min() < 0 or array.max() > header.maximum:
        raise CorruptInput("A sample is missing or out of range.")
    return array


def decode_floats(data: bytes, *, exposure: Exposure = 0) -> Raster:
    """Linear light. Some programs write integers above 1 instead, which are samples of 8 or 16 bits as they are."""
    header = _read_header(data[:_MAX_HEADER])
    if header is None or header.kind not in b"FfHh":
        raise CorruptInput("The header of the file is invalid.")
    size = (header.width, header.height)
    bytes_each = 2 if header.kind in b"Hh" else 4
    check_size(*size)
    shape = size[::-1] if header.mode == "L" else (*size[::-1], 3)
    values = sample_arrays.from_buffer(data, f"{header.order}f{bytes_each}", int(np.prod(shape)), header.end)
    values = values.reshape(shape)[::-1]
    high = float(np.max(values, initial=0, where=np.isfinite(values)))
    if high > 1 and all((part == np.rint(part)).all() for part in np.array_split(values, len(values))):
        linear_light.ignore_exposure(exposure)
        scale = _MAX_VALUE // 255 if high <= 255 else 1
        return sample_arrays.to_raster(
            lambda: DeepPixels((values.clip(0, _MAX_VALUE) * scale).astype(np.uint16), header.mode),
            size,
            header.mode,
            deep=True,
        )
    return linear_light.raster(
        lambda: values.astype(np.float32), header.mode, size, bits=8 * bytes_each, exposure=exposure
    )


def _array(raster: Raster) -> tuple[NDArray[Any], str]:
    """The samples of the only frame, and its mode."""
    pixels = raster.first_frame().pixels
    return (pixels.array if isinstance(pixels, DeepPixels) else np.asarray(pixels)), pixels.mode


def encode_bitmap(raster: Raster) -> bytes:
    image = raster.first_frame().image
    return b"P4\n%d %d\n" % image.size + image.tobytes("raw", "1;I")


def encode_samples(raster: Raster) -> bytes:
    array, mode = _array(raster)
    maximum = 255 if array.itemsize == 1 else _MAX_VALUE
    kind = b"6" if mode == "RGB" else b"5"
    header = b"P%b\n%d %d\n%d\n" % (kind, array.shape[1], array.shape[0], maximum)
    return header + array.astype(array.dtype.newbyteorder(">"), copy=False).tobytes()


def encode_arbitrary(raster: Raster) -> bytes:
    array, mode = _array(raster)
    fields = {
        "WIDTH": array.shape[1],
        "HEIGHT": array.shape[0],
        "DEPTH": len(mode),
        "MAXVAL": 255 if array.itemsize == 1 else _MAX_VALUE,
        "TUPLTYPE": _TUPLES[mode],
    }
    lines = ["P7", *(f"{name} {value}" for name, value in fields.items()), "ENDHDR", ""]
    return "\n".join(lines).encode() + array.astype(array.dtype.newbyteorder(">"), copy=False).tobytes()


def encode_floats(raster: Raster) -> bytes:
    """Linear light, from the bottom to the top."""
    array, mode = _array(raster)
    header = b"P%b\n%d %d\n-1.0\n" % (b"F" if mode == "RGB" else b"f", *array.shape[1::-1])
    return header + array[::-1].astype("<f4", copy=False).tobytes()


def _holds(*modes: str) -> TargetCapabilities:
    return TargetCapabilities(modes, deep_modes=modes)


_ENCODERS: Mapping[FileFormat, tuple[Callable[[Raster], bytes], TargetCapabilities]] = MappingProxyType(
    {
        PBM: (encode_bitmap, TargetCapabilities(("1",))),
        PGM: (encode_samples, _holds("L")),
        PPM: (encode_samples, _holds("RGB")),
        PAM: (encode_arbitrary, _holds("L", "LA", "RGB", "RGBA")),
        PFM: (encode_floats, TargetCapabilities(("L", "RGB"), deep_bits=(32,), linear=True)),
    }
)


@hookimpl
def conversions() -> list[AnyConversion]:
    readers: list[AnyConversion] = [conversion(one, RASTER, memory=24)(decode) for one in _ENCODERS if one is not PFM]
    readers.append(conversion(PFM, RASTER, memory=45)(decode_floats))
    writers: list[AnyConversion] = [
        conversion(RASTER, one, memory=24, capabilities=capabilities)(encode)
        for one, (encode, capabilities) in _ENCODERS.items()
    ]
    return readers + writers
