"""Examples of options for the documentation: the request, and the image that it results in."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType

from engine.options import OptionValue, OptionValues

EXAMPLES_FOLDER = Path(__file__).parents[1] / "static" / "examples"
"""The drawing of all examples, their images, and `sizes.json`."""

SIZES = "sizes.json"
"""By the name of each image: width and height in pixels, bytes, and the number of frames."""


@dataclass(frozen=True)
class ExampleSource:
    """A file that is converted: the drawing with these options. A film has frames, in which something moves."""

    shows: str
    options: OptionValues = field(default_factory=dict)
    output_format: str = "png"
    is_film: bool = False
    original: str = ""

    def image(self, name: str) -> str:
        """The file that shows it."""
        return f"{self.original or name}.webp"


SOURCES: Mapping[str, ExampleSource] = MappingProxyType(
    {
        "scene": ExampleSource("A red boat on a lake in front of mountains, with the sun in the sky at the left"),
        "round": ExampleSource("The scene with round ends, and nothing in the corners", {"radius": "50%"}),
        "framed": ExampleSource(
            "The scene with a wide border of one color", {"width": 180, "pad": "20,40,20,20", "background": "#d8cfc0"}
        ),
        "light": ExampleSource("The scene", output_format="hdr", original="scene"),
        "film": ExampleSource("The boat sails from the left to the right", {"width": 160}, is_film=True),
    }
)
"""The files to convert, by name."""


@dataclass(frozen=True)
class OptionExample:
    """An example of the first one of its `options`, which are given together. `shows` is what the result looks like.

    The value of an option that is a file is the name of a static file.
    """

    options: OptionValues
    shows: str
    source: str = "scene"
    output_format: str = "webp"

    @property
    def option(self) -> str:
        return next(iter(self.options))

    @property
    def image(self) -> str:
        """The name of the file with the result."""
        return f"{self.option}.{self.output_format}"

    @property
    def fields(self) -> list[str]:
        """The options as fields of a request."""
        return [f"{name}={_text(name, value)}" for name, value in self.options.items()]


OPTION_EXAMPLES: tuple[OptionExample, ...] = (
    OptionExample({"width": 120}, "The whole scene, half as wide"),
    OptionExample({"height": 60}, "The whole scene, 60 pixels high"),
    OptionExample(
        {"fit": "contain", "width": 150, "height": 150, "background": "#14334a"},
        "The scene in a square, with dark bands above and below it",
    ),
    OptionExample({"scale": "25%"}, "The whole scene, a quarter as wide"),
    OptionExample(
        {"enlarge": True, "width": 240, "crop": "136,76,72,48"},
        "The boat alone, with soft edges, as large as the scene",
    ),
    OptionExample({"max_pixels": 9600}, "The whole scene, a quarter of its area"),
    OptionExample({"dpr": 2, "width": 90}, "The whole scene, 180 pixels wide"),
    OptionExample({"quality": 5}, "The scene with visible blocks", output_format="jpeg"),
    OptionExample({"max_bytes": 1500}, "The scene with some details lost"),
    OptionExample({"subsampling": "4:4:4", "quality": 80}, "The scene, whose colors end sharply", output_format="jpeg"),
    OptionExample({"alpha_quality": 0}, "The scene, whose round ends have steps", "round"),
    OptionExample({"palette": True, "quality": 60}, "The scene, nearly as it was", output_format="png"),
    OptionExample({"colors": 6, "dither": 0}, "The scene in six flat colors", output_format="png"),
    OptionExample({"dither": 1, "colors": 6}, "The scene in dots of six colors", output_format="png"),
    OptionExample({"crop": "50%,25%,50%,75%"}, "The right half of the scene without the upper quarter"),
    OptionExample({"gravity": "attention", "crop": "1:1"}, "A square with the boat"),
    OptionExample({"trim": 10}, "The scene without the border", "framed"),
    OptionExample({"rotate": 90}, "The scene turned clockwise"),
    OptionExample({"flip": "horizontal"}, "The scene mirrored: the sun is at the right"),
    OptionExample({"pad": "10", "background": "#c8442f"}, "The scene with a red border"),
    OptionExample({"radius": "30"}, "The scene with rounded corners"),
    OptionExample({"background": "#f4c542"}, "The scene with round ends, and yellow corners", "round"),
    OptionExample({"pages": "6"}, "One frame, with the boat at the right", "film"),
    OptionExample({"frames": "every:2"}, "The boat sails in half as many steps", "film"),
    OptionExample({"reverse": True}, "The boat sails backwards, from the right to the left", "film"),
    OptionExample({"delay": 600}, "The boat sails slowly", "film"),
    OptionExample({"speed": 3}, "The boat sails fast", "film"),
    OptionExample({"loop": 2}, "The boat sails two times, and stops at the right", "film"),
    OptionExample({"color_space": "gray"}, "The scene in gray"),
    OptionExample({"brightness": 1.4}, "The scene, lighter"),
    OptionExample({"contrast": 1.7}, "The scene with darker mountains and a lighter sky"),
    OptionExample({"saturation": 2}, "The scene in vivid colors"),
    OptionExample({"gamma": 0.5}, "The scene with darker middle tones"),
    OptionExample({"exposure": -2}, "The scene as at dusk", "light"),
    OptionExample({"blur": 4}, "The scene without sharp edges"),
    OptionExample({"sharpen": 3}, "The scene with bright lines along the edges"),
    OptionExample({"pixelate": 12}, "The scene as a mosaic"),
    OptionExample({"watermark": "mark.svg"}, "The scene with a mark in the lower right corner"),
    OptionExample({"watermark_text": "© Lake"}, "The scene with a text in the lower right corner"),
    OptionExample({"watermark_color": "#ffd84a", "watermark_text": "© Lake"}, "The text in yellow"),
    OptionExample(
        {"watermark_position": "tile", "watermark": "mark.svg", "watermark_size": 12}, "The mark again and again"
    ),
    OptionExample({"watermark_size": 60, "watermark_text": "© Lake"}, "A text of more than half of the width"),
    OptionExample({"watermark_margin": 15, "watermark": "mark.svg"}, "The mark farther away from the corner"),
    OptionExample({"watermark_opacity": 1, "watermark": "mark.svg"}, "The mark, which covers what is behind it"),
    OptionExample(
        {"watermark_angle": 30, "watermark_text": "© Lake", "watermark_position": "center", "watermark_size": 60},
        "A slanted text in the middle",
    ),
)
"""At most one for each option. Their images are made by `python -m tests.support.samples.option_images`."""


@dataclass(frozen=True)
class ExampleImage:
    """An image of the documentation: its static file, what it shows, its size in pixels and bytes, and its fields."""

    path: str
    shows: str
    width: int
    height: int
    size: int
    frames: int
    option: str = ""
    fields: tuple[str, ...] = ()


def example_images(options: Iterable[str]) -> Iterator[ExampleImage]:
    """The images of the examples of these options, in their order, after the images that they convert."""
    by_option = {example.option: example for example in OPTION_EXAMPLES}
    examples = [by_option[name] for name in options if name in by_option]
    originals = {SOURCES[one.source].image(one.source): SOURCES[one.source] for one in examples}
    for name, source in originals.items():
        yield ExampleImage(f"examples/{name}", source.shows, *_sizes()[name])
    for one in examples:
        path, size = f"examples/{one.image}", _sizes()[one.image]
        yield ExampleImage(path, one.shows, *size, one.option, tuple(one.fields))


@cache
def _sizes() -> Mapping[str, tuple[int, int, int, int]]:
    found: Mapping[str, tuple[int, int, int, int]] = json.loads((EXAMPLES_FOLDER / SIZES).read_text())
    return found


def _text(name: str, value: OptionValue) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"@{value}" if name == "watermark" else str(value)
