"""Converts bit depth, transparency and colour space of pictures to what a target format supports."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING
from warnings import warn

from PIL import Image, ImageCms

from engine.conversions import FidelityWarning

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_COLOR_SPACES = {"1": "GRAY", "L": "GRAY", "LA": "GRAY", "CMYK": "CMYK", "LAB": "Lab"}
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
}


def to_8_bits(array: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """16-bit samples scaled to 8 bits: 65535 becomes 255."""
    import numpy as np

    return ((array.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def matching_profile(mode: str, profile: bytes | None) -> bytes | None:
    """`profile` if its colour space is that of `mode`, otherwise None."""
    if profile is None:
        return None
    try:
        space = ImageCms.ImageCmsProfile(BytesIO(profile)).profile.xcolor_space.strip()
    except (OSError, ImageCms.PyCMSError):
        return None
    return profile if space == _COLOR_SPACES.get(mode, "RGB") else None


def convert_for(
    image: Image.Image, profile: bytes | None, modes: tuple[str, ...], *, keep_profile: bool
) -> tuple[Image.Image, bytes | None]:
    """Converts `image` to one of `modes`. Returns it with its ICC profile, None unless `keep_profile`.

    Unsupported colour spaces and profiles are converted to sRGB. Unsupported transparency is flattened onto white,
    with a FidelityWarning.
    """
    image = _standard_mode(image)
    profile = matching_profile(image.mode, profile)
    if not any(mode in modes for mode in ("LA", "RGBA", "PA")):
        image = _flatten_alpha(image)
    mode = _smallest_mode(image, modes)
    if mode is None or (profile and (not keep_profile or _color_space(mode) != _color_space(image.mode))):
        image, profile = to_srgb(image, profile), None
        mode = _smallest_mode(image, modes) or modes[-1]
    if mode != "PA" and mode != image.mode:
        image = image.convert(mode)
    return image, profile


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
        from engine.mupdf import pymupdf

        # CMYK without a profile: MuPDF's default profile matches what PDF viewers show.
        inks = pymupdf.Pixmap(pymupdf.csCMYK, *image.size, image.tobytes(), False)
        return Image.frombytes("RGB", image.size, pymupdf.Pixmap(pymupdf.csRGB, inks).samples)
    return image if image.mode == mode else image.convert(mode)


def _standard_mode(image: Image.Image) -> Image.Image:
    """`image` in one of the modes 1, L, LA, P, RGB, RGBA, CMYK or LAB."""
    mode = image.mode
    if mode == "P" or (mode in ("1", "L", "RGB") and "transparency" not in image.info):
        return image
    if mode in ("LA", "RGBA", "CMYK", "LAB"):
        return image
    if mode.startswith("I") or mode == "F":
        return _to_8_bit_grey(image)
    if mode == "La":
        return image.convert("LA")
    return image.convert("RGBA" if mode in ("PA", "RGBa") or "transparency" in image.info else "RGB")


def _to_8_bit_grey(image: Image.Image) -> Image.Image:
    """Grey of more than 8 bits as L or LA: 16-bit samples scaled, others normalised by `to_16_bits`."""
    import numpy as np

    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        grey = Image.fromarray(to_8_bits(values.astype(np.uint16)), "L")
        key = image.info.get("transparency")
        if isinstance(key, int):
            grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8), "L"))
        return grey
    if image.mode == "I" and values.min() >= 0 and values.max() <= 65535:
        return Image.fromarray(to_8_bits(values.astype(np.uint16)), "L")
    return Image.fromarray(to_8_bits(to_16_bits(values)), "L")


def to_16_bits(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Samples of any type scaled to 16 bits: floats up to 1 from the range 0 to 1, others from their own range."""
    import numpy as np

    finite = np.nan_to_num(values.astype(np.float64), posinf=1.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    if values.dtype.kind == "f" and high <= 1.0:
        low, high = 0.0, 1.0
    span = (high - low) or 1.0
    scaled = np.clip((finite - low) / span, 0.0, 1.0) * 65535 + 0.5
    return np.ascontiguousarray(scaled, dtype=np.uint16)


def _smallest_mode(image: Image.Image, modes: tuple[str, ...]) -> str | None:
    mode = "PA" if image.mode == "P" and _has_alpha(image) else image.mode
    return next((compatible for compatible in _COMPATIBLE_MODES.get(mode, ()) if compatible in modes), None)


def _color_space(mode: str) -> str:
    return _COLOR_SPACES.get(mode, "RGB")


def _has_alpha(image: Image.Image) -> bool:
    return image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info


def _flatten_alpha(image: Image.Image) -> Image.Image:
    """`image` without alpha, flattened onto white unless it is fully opaque."""
    if not _has_alpha(image):
        return image
    image = image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    alpha = image.getchannel("A")
    without_alpha = image.convert(image.mode[:-1])
    if alpha.getextrema() == (255, 255):
        return without_alpha
    warn(FidelityWarning("alpha_flattened", "Transparency was flattened onto white."), stacklevel=4)
    return Image.composite(without_alpha, Image.new(image.mode[:-1], image.size, "white"), alpha)
