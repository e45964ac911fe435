"""Colour: bit depth, transparency, and colour spaces of pictures, made to fit what a target holds."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any
from warnings import warn

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageCms

from engine.conversions import FidelityWarning
from engine.lazy_import import lazy_import

if TYPE_CHECKING:
    from engine import mupdf as _mupdf
else:
    _mupdf = lazy_import("engine.mupdf")

_SPACES = {"1": "GRAY", "L": "GRAY", "LA": "GRAY", "CMYK": "CMYK", "LAB": "Lab"}
_RELATIVE = ImageCms.Intent.RELATIVE_COLORIMETRIC
_BLACK_POINT = ImageCms.Flags.BLACKPOINTCOMPENSATION

# For each mode the layouts that keep all of it, dearest last.
_WIDER = {
    "1": ("1", "L", "P", "RGB", "LA", "RGBA"),
    "L": ("L", "RGB", "LA", "RGBA"),
    "LA": ("LA", "RGBA"),
    "P": ("P", "PA", "RGB", "RGBA"),
    "PA": ("PA", "RGBA"),
    "RGB": ("RGB", "RGBA"),
    "RGBA": ("RGBA",),
    "CMYK": ("CMYK",),
}


def eight_bits(array: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """16-bit samples scaled to 8: 65535 becomes 255, halves round up."""
    return ((array.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)


def matching_profile(mode: str, profile: bytes | None) -> bytes | None:
    """`profile` where it describes pixels of that mode, else None: a wrong profile is worse than none."""
    if profile is None:
        return None
    try:
        space = ImageCms.ImageCmsProfile(BytesIO(profile)).profile.xcolor_space.strip()
    except (OSError, ImageCms.PyCMSError):
        return None
    return profile if space == _SPACES.get(mode, "RGB") else None


def preload_cmyk(mode: str, profile: bytes | None) -> None:
    """To be told of pixels before they are decoded: where that takes another process, their decoding is not lost."""
    if mode == "CMYK" and matching_profile(mode, profile) is None:
        _cmyk_renderer()


def convert_for(
    image: Image.Image, profile: bytes | None, modes: tuple[str, ...], *, keep_profile: bool
) -> tuple[Image.Image, bytes | None]:
    """`image` in one of `modes`, and its profile where the target keeps one.

    Inks, Lab and profiles that the target cannot hold become sRGB; transparency that it cannot hold is laid
    on white, with a FidelityWarning.
    """
    image = _plain(image)
    profile = matching_profile(image.mode, profile)
    if not any(mode in modes for mode in ("LA", "RGBA", "PA")):
        image = _opaque(image)
    mode = _layout(image, modes)
    if mode is None or (profile and (not keep_profile or _space(mode) != _space(image.mode))):
        image, profile = srgb(image, profile), None
        mode = _layout(image, modes) or modes[-1]
    if mode != "PA" and mode != image.mode:
        image = image.convert(mode)
    return image, profile


def srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """`image` in sRGB (RGB, or RGBA where it has alpha), through its profile or the usual one for its inks."""
    alpha = "A" if _transparent(image) else ""
    if image.mode in ("P", "PA") or (alpha and image.mode not in ("LA", "RGBA")):
        image = image.convert("RGB" + alpha)
    if profile is None:
        return _default_srgb(image, "RGB" + alpha)
    source = ImageCms.ImageCmsProfile(BytesIO(profile))
    target = ImageCms.createProfile("sRGB")
    bands = image.convert("L" if image.mode in ("1", "LA") else "RGB") if image.mode in ("1", "LA", "RGBA") else image
    try:
        result = ImageCms.profileToProfile(bands, source, target, _RELATIVE, outputMode="RGB", flags=_BLACK_POINT)
    except ImageCms.PyCMSError:
        return _default_srgb(image, "RGB" + alpha)
    assert result is not None  # it is, unless the conversion works in place
    if alpha:
        result.putalpha(image.getchannel("A"))
    return result


def _default_srgb(image: Image.Image, mode: str) -> Image.Image:
    if image.mode == "LAB":
        lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB"))
        result = ImageCms.profileToProfile(image, lab, ImageCms.createProfile("sRGB"), outputMode="RGB")
        assert result is not None
        return result
    if image.mode == "CMYK":
        # Inks that tell no profile look as they do in a PDF viewer, which knows the usual press.
        pymupdf = _cmyk_renderer()
        inks = pymupdf.Pixmap(pymupdf.csCMYK, *image.size, image.tobytes(), False)
        return Image.frombytes("RGB", image.size, pymupdf.Pixmap(pymupdf.csRGB, inks).samples)
    return image if image.mode == mode else image.convert(mode)


def _cmyk_renderer() -> Any:
    return _mupdf.pymupdf


def _plain(image: Image.Image) -> Image.Image:
    """`image` in one of the modes that targets speak of: 1, L, LA, P, RGB, RGBA, CMYK or LAB."""
    mode = image.mode
    if mode == "P" or (mode in ("1", "L", "RGB") and "transparency" not in image.info):
        return image
    if mode in ("LA", "RGBA", "CMYK", "LAB"):
        return image
    if mode.startswith("I") or mode == "F":
        return _scaled(image)
    if mode == "La":
        return image.convert("LA")
    return image.convert("RGBA" if mode in ("PA", "RGBa") or "transparency" in image.info else "RGB")


def _scaled(image: Image.Image) -> Image.Image:
    """Deep grey as L. 16-bit samples scale by their range, wider ones and floats by the picture's own."""
    values = np.asarray(image)
    if image.mode.startswith("I;16"):
        grey = Image.fromarray(eight_bits(values.astype(np.uint16)), "L")
        key = image.info.get("transparency")
        if isinstance(key, int):
            grey.putalpha(Image.fromarray(np.where(values == key, 0, 255).astype(np.uint8), "L"))
        return grey
    if image.mode == "I" and values.min() >= 0 and values.max() <= 65535:
        return Image.fromarray(eight_bits(values.astype(np.uint16)), "L")
    return Image.fromarray(eight_bits(normalised(values)), "L")


def normalised(values: NDArray[np.generic]) -> NDArray[np.uint16]:
    """Samples of any type at 16 bits: floats within 0 to 1 as they are, anything else by its own range."""
    finite = np.nan_to_num(values.astype(np.float64), posinf=1.0, neginf=0.0)
    low, high = float(finite.min()), float(finite.max())
    if values.dtype.kind == "f" and high <= 1.0:
        low, high = 0.0, 1.0
    span = (high - low) or 1.0
    scaled = np.clip((finite - low) / span, 0.0, 1.0) * 65535 + 0.5
    return np.ascontiguousarray(scaled, dtype=np.uint16)


def _layout(image: Image.Image, modes: tuple[str, ...]) -> str | None:
    mode = "PA" if image.mode == "P" and _transparent(image) else image.mode
    return next((wider for wider in _WIDER.get(mode, ()) if wider in modes), None)


def _space(mode: str) -> str:
    return _SPACES.get(mode, "RGB")


def _transparent(image: Image.Image) -> bool:
    return image.mode in ("LA", "RGBA", "PA") or "transparency" in image.info


def _opaque(image: Image.Image) -> Image.Image:
    """`image` without alpha, laid on white where anything shows through."""
    if not _transparent(image):
        return image
    image = image if image.mode in ("LA", "RGBA") else image.convert("RGBA")
    alpha = image.getchannel("A")
    bare = image.convert(image.mode[:-1])
    if alpha.getextrema() == (255, 255):
        return bare
    warn(FidelityWarning("alpha_flattened", "Transparency is laid on white."), stacklevel=4)
    return Image.composite(bare, Image.new(bare.mode, bare.size, "white"), alpha)
