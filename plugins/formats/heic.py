"""HEIC (HEIF with HEVC images)."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image

from engine import (
    RASTER,
    Brands,
    CorruptInput,
    DeepPixels,
    FidelityWarning,
    FileFormat,
    Frame,
    Loss,
    OptionValues,
    Raster,
    Size,
    TargetCapabilities,
    boxes_are_complete,
    check_side,
    conversion,
    lazy_imports,
)
from engine.option_types import Effort, Hdr, Lossless, Pages, Quality, Subsampling
from plugins._boxes import heif, heif_items
from plugins._color import cicp
from plugins._pixels import pillow

if TYPE_CHECKING:
    from numpy.typing import NDArray

with lazy_imports():
    import numpy as np
    import pillow_heif

HEIC = FileFormat(
    "heic",
    media_type="image/heic",
    extensions=("heic", "heif", "hif"),
    sniff=Brands("heic", "heix", "heim", "heis", "hevc", "hevx", "hevm", "hevs", item="hvc1"),
    is_complete=boxes_are_complete,
    must_be_complete=True,
    lossy=True,
    bytes_per_pixel=0.05,
)

MODULES = ("pillow_heif",)
_MODES = ("L", "RGB", "RGBA")
# Presets of x265 by effort. The default, slow, takes twice the time of veryfast for 5 % fewer bytes.
_PRESETS = (*("ultrafast",) * 3, *("veryfast",) * 3, *("slow",) * 2, "slower")
_FASTER = ("slower", "slow", "veryfast", "ultrafast")
_SLOWEST = ((4, "slower"), (8, "veryfast"))  # megapixels, and the slowest preset up to that size
_EQUAL_QUALITY = {"x265:aq-strength": "1.0"}  # the value of all presets but ultrafast
_TWO_BLOCKS = 32  # pixels
_LOSSLESS = {"quality": -1, "chroma": 444}
_CODE_POINTS = ("color_primaries", "transfer_characteristics", "matrix_coefficients")


@conversion(HEIC, RASTER, cost=4)
def decode(data: bytes, *, pages: Pages | None = None, hdr: Hdr = "keep") -> Raster:
    pillow_heif.register_heif_opener()
    heif.check_size(data)
    data = heif_items.with_brand(data, b"heic")
    frames = heif.frame_count(data)
    if frames > 1:
        FidelityWarning.issue("frames_dropped", f"Only the first of {frames} frames was converted.")
    if heif.find(data, b"mpvd"):
        pillow.warn_of_video()
    header = pillow.open_image(data, "HEIF").info
    # pillow-heif opens at another image, such as a tile, if the primary one is invalid.
    if not header["primary"]:
        raise CorruptInput("The primary image is invalid.")
    raster = pillow.decode(data, "HEIF", paged=True, lossy=True, pages=pages)
    bits = header["bit_depth"]
    if bits > 8:
        raster = replace(raster, deep_frames=_decode_deep(data, pages), source=replace(raster.source, bit_depth=bits))
    raster = heif.with_colors(raster, data)
    if hdr == "drop" or pages or raster.hdr:
        return raster
    return replace(raster, gain_map=heif_items.read(data, _first_image, raster.sizes[0]))


def _first_image(data: bytes) -> Image.Image:
    return pillow.decode(data, "HEIF").first_frame().image


def _decode_deep(data: bytes, pages: str | None) -> Iterator[Frame]:
    """The primary image, then the others. libheif turns them upright."""
    file = pillow_heif.open_heif(BytesIO(data), convert_hdr_to_8bit=False, hdr_to_16bit=False)
    images = dict(enumerate(file))
    others = [index for index in images if index != file.primary_index]
    order = pillow.select([file.primary_index, *others], pages)
    del file
    for index in order:
        image = images.pop(index)
        mode, _, depth = image.mode.partition(";")
        samples: NDArray[np.uint16] = np.asarray(image)
        info: dict[str, Any] = image.info
        del image  # frees its pixels, once they are scaled
        pixels = DeepPixels.from_bits(samples, int(depth or 8), "L" if mode == "I" else mode)
        del samples
        if mode == "RGBa":
            pixels = _with_straight_alpha(pixels)
        yield Frame(pixels, info.get("icc_profile"))
        del pixels


def _with_straight_alpha(pixels: DeepPixels) -> DeepPixels:
    """RGBA from colors that are multiplied by alpha."""
    alpha = np.maximum(pixels.array[..., 3:], 1)
    colors = np.minimum(pixels.array[..., :3].astype(np.uint32) * 65535 // alpha, 65535)
    return DeepPixels(np.dstack((colors.astype(np.uint16), pixels.array[..., 3:])), "RGBA")


# Images of 12 bits have another HEVC profile, which phones and browsers do not decode.
_CAPABILITIES = TargetCapabilities(
    ("RGB", "RGBA"),
    deep_modes=_MODES,
    deep_bits=(10,),
    icc=True,
    hdr=True,
    max_side=32_768,
    encoding=True,
    metadata=frozenset({"exif", "xmp"}),
)


def _holds(options: OptionValues) -> TargetCapabilities:
    """Without loss, colors have the full resolution."""
    return replace(_CAPABILITIES, without=frozenset({"subsampling"})) if options.get("lossless") else _CAPABILITIES


@conversion(RASTER, HEIC, loss=Loss.DETAIL, cost=40, memory=30, capabilities=_holds)
def encode(
    raster: Raster,
    *,
    quality: Quality = 50,
    lossless: Lossless = False,
    effort: Effort = 5,
    subsampling: Subsampling = "4:2:0",
) -> bytes:
    frame = raster.first_frame()
    if min(frame.size) < _TWO_BLOCKS:  # the encoder fails on longer images of this width
        check_side(frame.size, 4096)
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        image = pillow_heif.from_bytes(f"{pixels.mode};16", pixels.size, pixels.array.tobytes())
    else:
        image = pillow_heif.from_bytes(pixels.mode, pixels.size, pixels.tobytes())
    chroma = int(subsampling.replace(":", ""))
    parameters: dict[str, Any] = _LOSSLESS if lossless else {"quality": quality, "chroma": chroma}
    code_points = dict(zip(_CODE_POINTS, cicp.code_points(raster.hdr, lossless=lossless), strict=True))
    metadata = {"icc_profile": frame.icc_profile, "exif": raster.metadata.exif, "xmp": raster.metadata.xmp}
    file = BytesIO()
    image.save(
        file,
        enc_params={"preset": _preset(effort, frame.size), **_EQUAL_QUALITY},
        **parameters,
        **code_points,
        **{name: block for name, block in metadata.items() if block},
    )
    return file.getvalue()


def _preset(effort: int, size: Size) -> str:
    """The preset of x265: larger images are encoded faster, so that they take at most some 20 seconds."""
    width, height = size
    pixels = width * height
    slowest = next((preset for megapixels, preset in _SLOWEST if pixels <= megapixels * 1_000_000), _FASTER[-1])
    return max(_PRESETS[effort - 1], slowest, key=_FASTER.index)
