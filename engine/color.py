"""Converts bit depth, transparency and color space of images to what a target format supports."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from PIL import Image, ImageCms, ImageColor

from engine.conversions import FidelityWarning
from engine.lazy import lazy_imports

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

with lazy_imports():
    import imagecodecs
    import numpy as np

    from engine.mupdf import pymupdf

WHITE = (255, 255, 255)

_COLOR_SPACES = {"1": "GRAY", "L": "GRAY", "LA": "GRAY", "CMYK": "CMYK", "LAB": "Lab"}
_STRIP = 64  # rows
_RELATIVE = ImageCms.Intent.RELATIVE_COLORIMETRIC
_BLACK_POINT = ImageCms.Flags.BLACKPOINTCOMPENSATION

# The modes that represent each mode without loss, smallest first.
_COMPATIBLE_MODES = {
    "1": ("1", "L", "P", "RGB", "LA", "RGBA"),
    "L": ("L", "RGB", "LA", "RGBA"),
    "LA": ("LA", "RGBA"),
    "P": ("P", "PA", "RGB", "RGBA"),
    "PA": ("PA", "RGBA"),
    "RGB": ("RGB", "RGBA"),
    "RGBA": ("RGBA",),
    "CMYK": ("CMYK",),
    "LAB": ("LAB",),
}


def parse(text: str) -> tuple[int, int, int, int]:
    """Red, green, blue and alpha of a CSS color: #rgb, #rrggbb, #rrggbbaa or a name. Raises ValueError."""
    if text.lower() == "transparent":
        return 0, 0, 0, 0
    try:
        red, green, blue, *alpha = ImageColor.getrgb(text)
    except ValueError:
        raise ValueError("must be a CSS color such as #fff or white.") from None
    return red, green, blue, alpha[0] if alpha else 255


def encode_srgb(linear: ArrayLike) -> NDArray[Any]:
    """Linear light encoded with the transfer function of sRGB. Negative values stay linear."""
    values = np.asarray(linear)
    curve = 1.055 * np.maximum(values, 0.0031308) ** (1 / 2.4) - 0.055
    return np.where(values <= 0.0031308, 12.92 * values, curve)


def decode_srgb(encoded: ArrayLike) -> NDArray[Any]:
    """Linear light of values that are encoded with the transfer function of sRGB."""
    values = np.asarray(encoded)
    return np.where(values <= 0.04045, values / 12.92, ((np.maximum(values, 0.04045) + 0.055) / 1.055) ** 2.4)


def to_8_bits(array: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """16-bit samples scaled to 8 bits: 65535 becomes 255."""
    # 32 bits would avoid the overflow, but take ten times as long.
    return ((np.minimum(array, 65535 - 128) + np.uint16(128)) // np.uint16(257)).astype(np.uint8)


def scale(array: NDArray[Any], maximum: int, new_maximum: int) -> NDArray[np.uint16]:
    """Integer samples from 0 to `maximum` scaled to 0 to `new_maximum`, which is at most 65535, and rounded."""
    scaled = np.empty(array.shape, np.uint16)
    # In strips, because the products have twice the size of the samples.
    for top in range(0, len(array), _STRIP):
        strip = array[top : top + _STRIP].astype(np.uint32)
        strip *= new_maximum
        strip += maximum // 2
        scaled[top : top + _STRIP] = strip // maximum
    return scaled


def matching_profile(mode: str, profile: bytes | None) -> bytes | None:
    """`profile` if it has the color space of `mode`, otherwise None."""
    if profile is None:
        return None
    try:
        space = ImageCms.ImageCmsProfile(BytesIO(profile)).profile.xcolor_space.strip()
    except (OSError, ImageCms.PyCMSError):
        return None
    return profile if space == _color_space(mode) else None


def convert_for(
    image: Image.Image,
    profile: bytes | None,
    modes: tuple[str, ...],
    *,
    keep_profile: bool,
) -> tuple[Image.Image, bytes | None]:
    """Converts `image` to one of `modes`. Returns it with its ICC profile, None unless `keep_profile`.

    Unsupported color spaces and profiles are converted to sRGB, but CMYK without its profile stays CMYK. Unsupported
    transparency is flattened onto white. Issues a FidelityWarning for each loss.
    """
    image = standard_mode(image)
    profile = matching_profile(image.mode, profile)
    if profile and not keep_profile:
        if image.mode == "CMYK" and image.mode in modes:
            warn_profile_dropped()
        else:
            image = reduced_to_srgb(image, profile)
        profile = None
    if not any(mode in modes for mode in ("LA", "RGBA", "PA")):
        image, profile = on_background(image, profile, (*WHITE, 255))
    mode = _smallest_mode(image, modes)
    if mode is None or (profile and _color_space(mode) != _color_space(image.mode)):
        image = reduced_to_srgb(image, profile)
        profile = None
        mode = _smallest_mode(image, modes) or modes[-1]
    if mode not in _COMPATIBLE_MODES[image.mode]:
        image = Image.fromarray(*_without_colors(np.asarray(image), image.mode))
    return image if mode in ("PA", image.mode) else image.convert(mode), profile


def warn_profile_dropped() -> None:
    """Issues the warning for CMYK that loses its profile."""
    FidelityWarning.issue("profile_dropped", "The target holds CMYK, but not its color profile.")


def reduced_to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """As `to_srgb`, where sRGB was not requested. Issues a FidelityWarning for CMYK and Lab."""
    warn_converted(image.mode)
    return to_srgb(image, profile)


def warn_converted(mode: str) -> None:
    """Issues a FidelityWarning if colors of `mode` are CMYK or Lab, because they are converted to sRGB."""
    space = _color_space(mode)
    if space in ("CMYK", "Lab"):
        FidelityWarning.issue("color_converted", f"The colors were converted from {space} to sRGB.")


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """`image` in sRGB: RGBA if it has alpha, otherwise RGB. Without a profile, the mode's default applies."""
    alpha = "A" if _has_alpha(image) else ""
    if image.mode in ("P", "PA") or (alpha and image.mode not in ("LA", "RGBA")):
        image = image.convert("RGB" + alpha)
    if profile is None:
        return _to_default_srgb(image, "RGB" + alpha)
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    target = ImageCms.createProfile("sRGB")
    colors = image.convert("L" if image.mode in ("1", "LA") else "RGB") if image.mode in ("1", "LA", "RGBA") else image
    try:
        result = ImageCms.profileToProfile(colors, source, target, _RELATIVE, outputMode="RGB", flags=_BLACK_POINT)
    except ImageCms.PyCMSError:
        return _to_default_srgb(image, "RGB" + alpha)
    assert result is not None  # None only for in-place conversions
    if alpha:
        result.putalpha(image.getchannel("A"))
    return result


def _to_default_srgb(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == "LAB":
        lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
        result = ImageCms.profileToProfile(image, lab, ImageCms.createProfile("sRGB"), outputMode="RGB")
        assert result is not None
        return result
    if image.mode == "CMYK":
        # CMYK without a profile: MuPDF's default profile matches what PDF viewers show.
        inks = pymupdf.Pixmap(pymupdf.csCMYK, *image.size, image.tobytes(), False)
        return Image.frombytes("RGB", image.size, pymupdf.Pixmap(pymupdf.csRGB, inks).samples)
    return image if image.mode == mode else image.convert(mode)


def standard_mode(image: Image.Image) -> Image.Image:
    """`image` in one of the modes 1, L, LA, P, RGB, RGBA, CMYK or LAB."""
    mode = image.mode
    if mode == "P" or (mode in ("1", "L", "RGB") and "transparency" not in image.info):
        return image
    if mode in ("LA", "RGBA", "CMYK", "LAB"):
        return image
    if mode.startswith("I") or mode == "F":
        return _to_8_bit_gray(image)
    if mode == "La":
        return image.convert("LA")
    if mode in ("1", "L"):
        return image.convert("LA")
    return image.convert("RGBA" if mode in ("PA", "RGBa") or "transparency" in image.info else "RGB")


def _to_8_bit_gray(image: Image.Image) -> Image.Image:
    """Gray of more than 8 bits as L or LA: 16-bit samples scaled, others normalized by `to_16_bits`."""
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        gray = Image.fromarray(to_8_bits(values.astype(np.uint16)), "L")
        key = image.info.get("transparency")
        if isinstance(key, int):
            gray.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8), "L"))
        return gray
    if image.mode == "I" and values.min() >= 0 and values.max() <= 65535:
        return Image.fromarray(to_8_bits(values.astype(np.uint16)), "L")
    return Image.fromarray(to_8_bits(to_16_bits(values)), "L")


def to_16_bits(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Samples of any type scaled to 16 bits: floats up to 1 from the range 0 to 1, others from their own range.

    Issues a FidelityWarning if other values than the given ones would result from scaling them back.
    """
    finite = np.nan_to_num(values.astype(np.float64), posinf=1.0, neginf=0.0)
    low = float(finite.min())
    high = float(finite.max())
    is_float = values.dtype.kind == "f"
    if is_float and high <= 1.0:
        low = 0.0
        high = 1.0
    span = (high - low) or 1.0
    scaled = np.ascontiguousarray(np.clip((finite - low) / span, 0.0, 1.0) * 65535 + 0.5, dtype=np.uint16)
    for top in range(0, len(values), _STRIP):
        back = low + scaled[top : top + _STRIP] * (span / 65535)
        if not np.array_equal((back if is_float else np.rint(back)).astype(values.dtype), values[top : top + _STRIP]):
            warn_of_depth(16)
            break
    return scaled


def warn_of_depth(bits: int) -> None:
    """Issues the FidelityWarning that samples are reduced to this number of bits."""
    FidelityWarning.issue("depth_reduced", f"The image has more than {bits} bits per sample, which were reduced.")


def _smallest_mode(image: Image.Image, modes: tuple[str, ...]) -> str | None:
    mode = "PA" if image.mode == "P" and _has_alpha(image) else image.mode
    return next((compatible for compatible in _COMPATIBLE_MODES.get(mode, ()) if compatible in modes), None)


def _color_space(mode: str) -> str:
    return _COLOR_SPACES.get(mode, "RGB")


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info


def on_background(
    image: Image.Image, profile: bytes | None, background: tuple[int, int, int, int]
) -> tuple[Image.Image, bytes | None]:
    """`image` laid on a color in sRGB with alpha. It has no alpha if it or the color is opaque.

    Issues a FidelityWarning if transparency is lost.
    """
    *rgb, opacity = background
    if not _has_alpha(image) or opacity == 0:
        return image, profile
    image = image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    alpha = image.getchannel("A")
    if alpha.getextrema() == (255, 255):
        return image.convert(image.mode[:-1]), profile
    if image.mode in ("L", "LA") and len(set(rgb)) > 1:
        image = to_srgb(image, profile)
        profile = None
    without_alpha = image.convert(image.mode[:-1])
    canvas = Image.new(without_alpha.mode, image.size, color_in(rgb, without_alpha.mode, profile))
    if opacity < 255:
        canvas.putalpha(opacity)
        return Image.alpha_composite(canvas.convert("RGBA"), image.convert("RGBA")).convert(image.mode), profile
    warn_flattened()
    return Image.composite(without_alpha, canvas, alpha), profile


def warn_flattened() -> None:
    """Issues the FidelityWarning for transparency that is lost."""
    FidelityWarning.issue("alpha_flattened", "Transparency was replaced by the background color.")


def deep_on_background(
    array: NDArray[np.uint16], mode: str, profile: bytes | None, background: tuple[int, int, int, int]
) -> tuple[NDArray[np.uint16], str, bytes | None]:
    """As `on_background`, of 16-bit samples of `mode`. Returns the samples, their mode and their profile."""
    *rgb, opacity = background
    if mode not in ("LA", "RGBA") or opacity == 0:
        return array, mode, profile
    if mode == "LA" and len(set(rgb)) > 1:
        array, mode = deep_to_srgb(array, mode, profile)
        profile = None
    fill = np.array(color_in(rgb, mode[:-1], profile)) * 257.0
    if opacity == 255 and array[..., -1].min() < 65535:
        warn_flattened()
    laid = np.empty_like(array)
    for top in range(0, len(array), _STRIP):
        strip = array[top : top + _STRIP]
        above = strip[..., -1:] / 65535
        below = (1 - above) * (opacity / 255)
        colors = (strip[..., :-1] * above + fill * below) / (above + below)
        laid[top : top + _STRIP] = np.concatenate((colors, (above + below) * 65535), axis=-1) + 0.5
    if opacity < 255:
        return laid, mode, profile
    return (laid[..., 0] if mode == "LA" else laid[..., :-1]).copy(), mode[:-1], profile


def color_in(color: Sequence[int], mode: str, profile: bytes | None) -> tuple[int, ...]:
    """A color in sRGB as the samples of `mode`, which is L, RGB or CMYK, in the color space of the profile."""
    pixel = Image.new("RGB", (1, 1), tuple(color))
    return tuple(in_profile(pixel, mode, None if tuple(color) == WHITE else profile).tobytes())


def in_profile(image: Image.Image, mode: str, profile: bytes | None) -> Image.Image:
    """An image in sRGB as `mode`, which is L, RGB or CMYK, in the color space of the profile."""
    converted = None
    if profile:
        source = ImageCms.createProfile("sRGB")
        target = BytesIO(profile)
        with suppress(ImageCms.PyCMSError):  # a profile of an input device only
            converted = ImageCms.profileToProfile(image, source, target, _RELATIVE, outputMode=mode, flags=_BLACK_POINT)
    return converted or image.convert(mode)


def deep_to_srgb(array: NDArray[np.uint16], mode: str, profile: bytes | None) -> tuple[NDArray[np.uint16], str]:
    """16-bit samples of `mode` in sRGB, and their mode: RGB or RGBA. CMYK needs a profile."""
    colors, alpha = split_alpha(array, mode)
    profile = matching_profile(mode, profile)
    if profile:
        space = {"GRAY": "gray", "CMYK": "cmyk"}.get(_color_space(mode), "rgb")
        colors = _transform(colors, profile, _srgb_profile(), space, "rgb")
    elif colors.ndim == 2:
        colors = np.repeat(colors[..., None], 3, axis=2)
    return (colors, "RGB") if alpha is None else (np.dstack((colors, alpha)), "RGBA")


def deep_reduced(pixels: NDArray[Any], mode: str, profile: bytes | None, *, gray: bool) -> tuple[NDArray[Any], str]:
    """As `deep_to_srgb`, and then in `gray`, where that was not requested. Issues a FidelityWarning for each loss."""
    warn_converted(mode)
    pixels, mode = deep_to_srgb(pixels, mode, profile)
    return _without_colors(pixels, mode) if gray else (pixels, mode)


def _without_colors(pixels: NDArray[Any], mode: str) -> tuple[NDArray[Any], str]:
    FidelityWarning.issue("colors_reduced", "The target has only gray, or black and white.")
    return (pixels, mode) if mode in ("L", "LA") else srgb_to_gray(pixels, mode)


def srgb_to_gray(array: NDArray[Any], mode: str) -> tuple[NDArray[Any], str]:
    """The luminance of RGB or RGBA samples in sRGB, with the same transfer function, and its mode: L or LA."""
    colors, alpha = split_alpha(array, mode)
    gray = _transform(colors, _srgb_profile(), _gray_profile(), "rgb", "gray")
    return (gray, "L") if alpha is None else (np.dstack((gray, alpha)), "LA")


def split_alpha(array: NDArray[Any], mode: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The color samples and the alpha samples of an array of `mode`. Alpha is None if the mode has none."""
    if mode not in ("LA", "RGBA"):
        return array, None
    colors = array[..., 0] if mode == "LA" else array[..., :3]
    return np.ascontiguousarray(colors), array[..., -1]


def _transform(array: NDArray[Any], source: bytes, target: bytes, space: str, target_space: str) -> NDArray[Any]:
    flags = int(_BLACK_POINT)
    converted: NDArray[Any] = imagecodecs.cms_transform(
        array, source, target, colorspace=space, outcolorspace=target_space, intent=int(_RELATIVE), flags=flags
    )
    return converted


@cache
def _srgb_profile() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@cache
def _gray_profile() -> bytes:
    """A gray profile with the transfer function of sRGB."""
    linear = decode_srgb(np.linspace(0, 1, 4096))
    return bytes(imagecodecs.cms_profile("gray", transferfunction=linear.astype(np.float32)))
