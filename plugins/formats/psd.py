"""PSD and PSB (Adobe Photoshop): the merged image. Layers are composited only if it is missing, and never written."""

from __future__ import annotations

import struct
from dataclasses import replace

from engine import (
    RASTER,
    FidelityWarning,
    FileFormat,
    ImageMetadata,
    Loss,
    Raster,
    Signature,
    TargetCapabilities,
    color,
    conversion,
    lazy_imports,
)
from plugins._metadata import exif_data
from plugins._pixels import pillow

with lazy_imports():
    from plugins._psd import files, pixels

PSD = FileFormat(
    "psd",
    media_type="image/vnd.adobe.photoshop",
    extensions=("psd",),
    sniff=Signature((0, b"8BPS"), (4, b"\0\1")),
    bytes_per_pixel=0.5,
)
PSB = FileFormat(
    "psb",
    media_type="image/vnd.adobe.photoshop.large",
    extensions=("psb",),
    sniff=Signature((0, b"8BPS"), (4, b"\0\2")),
    bytes_per_pixel=0.5,
)

MODULES = ("plugins._psd.pixels", "plugins._psd.files", "encodings.mac_roman")
TEMPLATE = "documents/psd"
# Numbers of resources.
_RESOLUTION = 1005
_IPTC = 1028
_ICC_PROFILE = 1039
_EXIF = 1058
_XMP = 1060
_DPI = struct.Struct(">IHHIHH")  # across and down in dots per 65,536 inches, each with two units for display


def _decode(data: bytes) -> Raster:
    file = files.read(data)
    raster = _with_metadata(Raster(pixels.frames(file), sizes=[(file.width, file.height)]), file)
    if file.layers.number > 1 or file.layers.has_effects:
        FidelityWarning.issue("layers_flattened", "The layers and their effects became one image.")
    if file.layers.number and not file.has_merged_image:
        if file.depth > 8:
            FidelityWarning.issue("depth_reduced", "Layers are composited with 8 bits per sample.")
        # Compositing layers takes more memory than the size of the image suggests.
        return replace(raster, frames=pixels.composite(data), sizes=())
    if file.depth <= 8:
        return raster
    if not pixels.is_deep(file):
        FidelityWarning.issue("depth_reduced", "These colors are read with 8 bits per sample.")
        return raster
    if file.depth > 16:
        color.warn_of_depth(16)
    return replace(raster, deep_frames=pixels.deep_frames(file))


def _with_metadata(raster: Raster, file: files.PsdFile) -> Raster:
    dpi = file.resources.get(_RESOLUTION, b"")
    exif = file.resources.get(_EXIF)
    xmp = file.resources.get(_XMP)
    across, _, _, down, *_ = _DPI.unpack_from(dpi) if len(dpi) >= _DPI.size else (0, 0, 0, 0)
    # The pixels are upright as they are: Photoshop ignores the orientation, and other programs copy it unchanged.
    return replace(
        raster,
        metadata=ImageMetadata(
            exif=exif_data.upright(exif_data.PREFIX + exif.removeprefix(exif_data.PREFIX)) if exif else None,
            xmp=pillow.upright_xmp(xmp),
            iptc=file.resources.get(_IPTC),
        ),
        dpi=pillow.plausible_dpi((across / 65536, down / 65536)),
    )


_DEEP_MODES = ("L", "RGB", "RGBA", "CMYK")  # ImageMagick 6 misreads LA


decode = conversion(PSD, RASTER, loss=Loss.STRUCTURE, cost=2, isolated=True)(_decode)
decode_large = conversion(PSB, RASTER, loss=Loss.STRUCTURE, cost=2, isolated=True)(_decode)

_CAPABILITIES = TargetCapabilities(
    ("1", "P", *_DEEP_MODES, "LAB"),
    deep_modes=_DEEP_MODES,
    icc=True,
    max_side=30_000,
    metadata=frozenset({"exif", "xmp", "iptc", "resolution"}),
)


# Memory for images with alpha, for which there is a layer too.
@conversion(RASTER, PSD, cost=3, memory=70, capabilities=_CAPABILITIES)
def encode(raster: Raster) -> bytes:
    return _encode(raster, large=False)


@conversion(RASTER, PSB, cost=3, memory=70, capabilities=replace(_CAPABILITIES, max_side=300_000))
def encode_large(raster: Raster) -> bytes:
    return _encode(raster, large=True)


def _encode(raster: Raster, *, large: bool) -> bytes:
    frame = raster.first_frame()
    metadata = raster.metadata
    resources = {
        _RESOLUTION: raster.dpi and _dpi_resource(*raster.dpi),
        _ICC_PROFILE: frame.icc_profile,
        _EXIF: metadata.exif and metadata.exif.removeprefix(exif_data.PREFIX),
        _XMP: metadata.xmp,
        _IPTC: metadata.iptc,
    }
    return files.write(frame.pixels, {number: block for number, block in resources.items() if block}, large=large)


def _dpi_resource(across: float, down: float) -> bytes:
    inches = 1
    return _DPI.pack(round(across * 65536), inches, inches, round(down * 65536), inches, inches)
