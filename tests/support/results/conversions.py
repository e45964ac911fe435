"""Conversions of bytes in this process, and a look at their results."""

from collections.abc import Mapping
from io import BytesIO

from PIL import Image

from engine import pipeline
from engine.options import OptionValue
from engine.pipeline import PipelineResult
from engine.registry import load_registry

_REGISTRY = load_registry()


def convert(data: bytes, target: str, name: str = "", /, **options: OptionValue) -> PipelineResult:
    """Converts a file whose format is identified by its content, or the extension of its name."""
    source = _REGISTRY.identify_content(data, name)
    return pipeline.run(_REGISTRY.plan([source], target, options=options), [data], options)


def convert_with(data: bytes, target: str, files: Mapping[str, bytes], **options: OptionValue) -> PipelineResult:
    """Converts a file with additional files, by the names of the options that they belong to."""
    sources = [_REGISTRY.identify_content(one) for one in (data, *files.values())]
    plan = _REGISTRY.plan(sources, target, options=options, file_names=tuple(files))
    return pipeline.run(plan, [data, *files.values()], options)


def codes(result: PipelineResult) -> set[str]:
    """The codes of the warnings."""
    return {warned.code for warned in result.outcome.warnings}


def opened(data: bytes) -> Image.Image:
    """The image as Pillow reads it."""
    image = Image.open(BytesIO(data))
    image.load()
    return image
