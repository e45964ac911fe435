"""Formats in, paths out. These names are the plugin author's vocabulary."""

from engine.conversions import Conversion, FidelityWarning, Loss, Options, Requirement, Tool, conversion, tool
from engine.errors import (
    ConversionError,
    CorruptInput,
    InvalidOption,
    StepFailed,
    TooLarge,
    UnknownFormat,
    UnsupportedConversion,
)
from engine.formats import Brands, Content, FileFormat, Format, Signature, any_of
from engine.hookspecs import hookimpl
from engine.media import DOCUMENT, RASTER, Frame, Holds, Raster, Samples
from engine.pages import Pages

__all__ = [
    "DOCUMENT",
    "RASTER",
    "Brands",
    "Content",
    "Conversion",
    "ConversionError",
    "CorruptInput",
    "FidelityWarning",
    "FileFormat",
    "Format",
    "Frame",
    "Holds",
    "InvalidOption",
    "Loss",
    "Options",
    "Pages",
    "Raster",
    "Requirement",
    "Samples",
    "Signature",
    "StepFailed",
    "TooLarge",
    "Tool",
    "UnknownFormat",
    "UnsupportedConversion",
    "any_of",
    "conversion",
    "hookimpl",
    "tool",
]
