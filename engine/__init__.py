"""Formats in, paths out. These names are the plugin author's vocabulary."""

from engine.conversions import Conversion, FidelityWarning, Loss, Options, Requirement, conversion
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
    "Raster",
    "Requirement",
    "Samples",
    "Signature",
    "StepFailed",
    "TooLarge",
    "UnknownFormat",
    "UnsupportedConversion",
    "any_of",
    "conversion",
    "hookimpl",
]
