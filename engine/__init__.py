"""File formats, conversions between them, and their execution. `__all__` is the API of plugins."""

from engine import color
from engine.conversions import (
    AnyConversion,
    AnyTool,
    Conversion,
    FidelityWarning,
    Loss,
    Requirement,
    Tool,
    conversion,
    tool,
)
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, Size, check_side, check_size
from engine.errors import (
    ConversionError,
    CorruptInput,
    InvalidOption,
    StepFailed,
    TooLarge,
    UnknownFormat,
    UnsupportedConversion,
)
from engine.formats import (
    Brands,
    Content,
    FileFormat,
    Format,
    Signature,
    Sniffer,
    any_of,
    boxes_are_complete,
    ends_with,
)
from engine.hookspecs import hookimpl
from engine.media import DOCUMENT, RASTER, DeepPixels, Frame, Raster, TargetCapabilities
from engine.options import Options, Pages

__all__ = [
    "DOCUMENT",
    "MAX_FRAMES",
    "MAX_PIXELS",
    "RASTER",
    "AnyConversion",
    "AnyTool",
    "Brands",
    "Content",
    "Conversion",
    "ConversionError",
    "CorruptInput",
    "DeepPixels",
    "FidelityWarning",
    "FileFormat",
    "Format",
    "Frame",
    "InvalidOption",
    "Loss",
    "Options",
    "Pages",
    "Raster",
    "Requirement",
    "Signature",
    "Size",
    "Sniffer",
    "StepFailed",
    "TargetCapabilities",
    "TooLarge",
    "Tool",
    "UnknownFormat",
    "UnsupportedConversion",
    "any_of",
    "boxes_are_complete",
    "check_side",
    "check_size",
    "color",
    "conversion",
    "ends_with",
    "hookimpl",
    "tool",
]
