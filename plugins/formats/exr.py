"""OpenEXR: half and float, scan lines and tiles. Of several parts or layers, one becomes the image."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from engine import (
    RASTER,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    ImageMetadata,
    Primaries,
    Raster,
    Signature,
    Size,
    TargetCapabilities,
    check_size,
    conversion,
    lazy_imports,
)
from engine.option_types import Exposure
from plugins._color import cicp
from plugins._pixels import linear_light, pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np
    import OpenEXR

EXR = FileFormat(
    "exr",
    media_type="image/x-exr",
    extensions=("exr",),
    sniff=Signature((0, b"v/1\x01")),
    bytes_per_pixel=1.0,
)

MODULES = ("OpenEXR", "numpy")
_COLORS = ("R", "G", "B")
_LUMINANCE = "Y"
_ALPHA = "A"
_DIFFERENCES = ("RY", "BY")
_CHANNELS_OF_A_IMAGE = 4
_LARGEST_HALF = 65504.0
_NO_THREADS = 0
_MAX_SIDE = 1 << 24  # pixels
_BLOCK = 1 << 16  # pixels divided by alpha at a time


class _Image(NamedTuple):
    """The part of a file that is converted, and of it the channels by their names without the layer."""

    part: int
    channels: Mapping[str, str]
    size: Size
    offset: tuple[int, int]
    primaries: Primaries

    @property
    def mode(self) -> str:
        colors = "RGB" if _COLORS[0] in self.channels or _DIFFERENCES[0] in self.channels else "L"
        return "RGBA" if _ALPHA in self.channels else colors


@conversion(EXR, RASTER, cost=3, memory=45, isolated=True)
def decode(data: bytes, *, exposure: Exposure = 0) -> Raster:
    headers = [part.header for part in _open(data, header_only=True)]
    image = _choose(headers)
    header = headers[image.part]
    if len(headers) > 1 or len(header["channels"]) > len(image.channels):
        names = ", ".join(sorted(image.channels.values()))
        FidelityWarning.issue("layers_dropped", f"Only these channels were converted: {names}.")
    bits = 16 if _is_half(data, image) else 32
    raster = linear_light.raster(partial(_read, data, image), image.mode, image.size, bits=bits, exposure=exposure)
    xmp = header.get("xmp")
    density = header.get("xDensity", 0)
    dpi = pillow.plausible_dpi((density, density * header["pixelAspectRatio"]))
    return replace(raster, dpi=dpi, metadata=ImageMetadata(xmp=pillow.upright_xmp(xmp)))


def _open(data: bytes, *, header_only: bool = False) -> list[OpenEXR.Part]:
    """The parts. Raises CorruptInput: OpenEXR prints the reason and returns none."""
    parts: list[OpenEXR.Part] = OpenEXR.File(
        BytesIO(data), separate_channels=True, header_only=header_only, num_threads=_NO_THREADS
    ).parts
    if not parts:
        raise CorruptInput("The pixels are damaged or truncated.")
    return parts


def _choose(headers: list[dict[str, Any]]) -> _Image:
    """The first part with colors, or else with luminance, or else with any channel. Raises CorruptInput, TooLarge."""
    found: list[tuple[int, int, Mapping[str, str]]] = []
    for index, header in enumerate(headers):
        names = [channel.name for channel in header["channels"]]
        if not header["type"].name.startswith("deep"):
            found += [(rank, index, channels) for rank, channels in _images(names)]
    if not found:
        raise CorruptInput("The file has no flat image: only deep pixels, or no channels.")
    _, index, channels = min(found, key=lambda one: one[:2])
    header = headers[index]
    (left, top), (right, bottom) = (map(int, corner) for corner in header["displayWindow"])
    (data_left, data_top), (data_right, data_bottom) = (map(int, corner) for corner in header["dataWindow"])
    width, height = right - left + 1, bottom - top + 1
    total = -(-len(header["channels"]) // _CHANNELS_OF_A_IMAGE)  # all channels are decoded
    if min(width, height, data_right - data_left + 1, data_bottom - data_top + 1) < 1:
        raise CorruptInput("The file has no pixels.")
    check_size(width, height)
    check_size((data_right - data_left + 1) * total, data_bottom - data_top + 1)
    x_red, y_red, x_green, y_green, x_blue, y_blue, *white = header.get("chromaticities", ()) or (0.0,) * 8
    primaries = (*white, x_red, y_red, x_green, y_green, x_blue, y_blue)
    primaries = primaries if cicp.are_valid(primaries) else cicp.SRGB
    return _Image(index, channels, (width, height), (data_left - left, data_top - top), primaries)


def _images(names: list[str]) -> list[tuple[int, Mapping[str, str]]]:
    """The images among the channels of a part, by layer: a rank, the lowest for colors, and the channels."""
    layers: dict[str, dict[str, str]] = {}
    for name in names:
        layer, _, channel = name.rpartition(".")
        layers.setdefault(layer, {})[channel.upper() if layer else channel] = name
    ranked: list[tuple[int, Mapping[str, str]]] = []
    for layer, channels in sorted(layers.items(), key=lambda one: one[0] != ""):
        wanted = {key: channels[key] for key in (*_COLORS, _ALPHA) if key in channels}
        chroma = {key: channels[key] for key in (_LUMINANCE, *_DIFFERENCES, _ALPHA) if key in channels}
        if set(_COLORS) <= set(wanted):
            ranked.append((int(layer != ""), wanted))
        elif _LUMINANCE in chroma:
            complete = set(_DIFFERENCES) <= set(chroma)
            gray = {key: name for key, name in chroma.items() if key in (_LUMINANCE, _ALPHA)}
            ranked.append((2 + int(layer != ""), chroma if complete else gray))
        else:
            first = next((name for key, name in channels.items() if key != _ALPHA), "") or channels[_ALPHA]
            ranked.append((4, {_LUMINANCE: first}))
    return ranked


def _is_half(data: bytes, image: _Image) -> bool:
    """Whether the channels have 16 bits, from the list of the header, whose entries are a name and a type."""
    half = (1).to_bytes(4, "little")
    return all(name.encode() + b"\0" + half in data for name in image.channels.values())


def _read(data: bytes, image: _Image) -> NDArray[Any]:
    """The pixels of the display window: linear light, straight alpha."""
    stored = _open(data)[image.part].channels
    part = {key: stored[name] for key, name in image.channels.items()}
    del stored
    width, height = image.size
    window = np.zeros((height, width, len(image.mode)), np.float32)
    for band, samples in enumerate(_planes(part, image)):
        _place(samples, window[..., band], image.offset)
    del part
    if image.mode == "L":
        return window[..., 0]
    window = linear_light.from_primaries(image.primaries, window)
    if image.mode == "RGBA":
        pixels = window.reshape(-1, 4)
        for start in range(0, len(pixels), _BLOCK):
            block = pixels[start : start + _BLOCK]
            block[:, :3] /= np.where(block[:, 3:] == 0, 1, block[:, 3:])  # colors without alpha glow
    return window


def _planes(part: Mapping[str, OpenEXR.Channel], image: _Image) -> Iterator[NDArray[Any]]:
    """The samples of each band of the image's mode."""
    if _DIFFERENCES[0] in part:
        yield from _from_differences(part, image.primaries)
    elif _LUMINANCE in part:
        yield from [part[_LUMINANCE].pixels] * len(image.mode.removesuffix(_ALPHA))
    else:
        yield from (part[name].pixels for name in _COLORS)
    if _ALPHA in part:
        yield part[_ALPHA].pixels


def _from_differences(part: Mapping[str, OpenEXR.Channel], primaries: Primaries) -> tuple[NDArray[Any], ...]:
    """Red, green and blue from luminance, and from red and blue as differences from it, in units of it.

    A sample of a difference can be for several pixels.
    """
    luminance = np.asarray(part[_LUMINANCE].pixels, np.float32)
    differences = (np.asarray(part[name].pixels, np.float32) for name in _DIFFERENCES)
    steps = [(part[name].ySampling, part[name].xSampling) for name in _DIFFERENCES]
    full = [one.repeat(down, 0).repeat(across, 1) for one, (down, across) in zip(differences, steps, strict=True)]
    red, blue = ((one + 1) * luminance for one in full)
    red_share, green_share, blue_share = linear_light.luminances(primaries)
    return red, (luminance - red * red_share - blue * blue_share) / green_share, blue


def _place(samples: NDArray[Any], window: NDArray[Any], offset: tuple[int, int]) -> None:
    """Copies the samples to their position in the window, as far as they are inside."""
    x, y = offset
    left, top = max(x, 0), max(y, 0)
    right, bottom = min(x + samples.shape[1], window.shape[1]), min(y + samples.shape[0], window.shape[0])
    if left < right and top < bottom:
        window[top:bottom, left:right] = samples[top - y : bottom - y, left - x : right - x]


_CAPABILITIES = TargetCapabilities(
    ("L", "RGB", "RGBA"),
    deep_bits=(16, 32),
    linear=True,
    max_side=_MAX_SIDE,
    metadata=frozenset({"xmp", "resolution"}),
)


@conversion(RASTER, EXR, cost=6, memory=45, capabilities=_CAPABILITIES)
def encode(raster: Raster) -> bytes:
    """Writes halves where they hold the samples of the source, otherwise floats."""
    frame = raster.first_frame()
    assert isinstance(frame.pixels, DeepPixels)
    array, mode = frame.pixels.array, frame.pixels.mode
    if mode == "RGBA":
        array = np.dstack((array[..., :3] * array[..., 3:], array[..., 3]))
    too_large = raster.hdr is not None and bool((np.abs(array) > _LARGEST_HALF).any())
    kind = np.float32 if raster.bit_depth == 32 or too_large else np.float16
    header: dict[str, Any] = {"compression": OpenEXR.ZIP_COMPRESSION, "type": OpenEXR.scanlineimage}
    if raster.dpi:
        across, down = raster.dpi
        header |= {"xDensity": across, "pixelAspectRatio": down / across}
    if raster.metadata.xmp:
        header["xmp"] = raster.metadata.xmp.decode(errors="replace")
    file = BytesIO()
    channels = {_LUMINANCE if mode == "L" else mode: np.ascontiguousarray(array, kind)}
    OpenEXR.File(header, channels, num_threads=_NO_THREADS).write(file)
    return file.getvalue()
