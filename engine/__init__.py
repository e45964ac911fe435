"""Formats in, paths out. These names are the plugin author's vocabulary."""

from engine.conversions import Conversion, FidelityWarning, Loss, Requirement, Tool, conversion, tool
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
from engine.media import DOCUMENT, RASTER, DeepPixels, Frame, Raster, TargetCapabilities
from engine.options import Options, Pages

__all__ = [
    "DOCUMENT",
    "RASTER",
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
    "StepFailed",
    "TargetCapabilities",
    "TooLarge",
    "Tool",
    "UnknownFormat",
    "UnsupportedConversion",
    "any_of",
    "conversion",
    "hookimpl",
    "tool",
]
