"""The images of the examples of options, made by the conversions that they are examples of.

python -m tests.support.samples.option_images
"""

import json
from functools import cache

from engine import OptionValues
from engine.pipeline import run
from engine.registry import load_registry
from tests.support.results.conversions import opened
from tests.support.samples.generated import saved
from web.docs.option_examples import EXAMPLES_FOLDER, OPTION_EXAMPLES, SIZES, SOURCES

_BOAT = "translate(172 118)"
_PLACES = range(40, 201, 20)  # of the boat in the frames of a film
_FRAME = 200  # milliseconds


def option_images() -> dict[str, bytes]:
    """The images by the names of their files, those of the converted files too."""
    images = {
        source.image(name): convert_example(source_file(name), {"lossless": True, "effort": 9}, "webp")
        for name, source in SOURCES.items()
        if not source.original
    }
    for example in OPTION_EXAMPLES:
        images[example.image] = convert_example(source_file(example.source), example.options, example.output_format)
    return images


def sizes_of(data: bytes) -> list[int]:
    """What is kept about an image: width, height, bytes and number of frames."""
    image = opened(data)
    return [*image.size, len(data), getattr(image, "n_frames", 1)]


@cache
def source_file(name: str) -> bytes:
    """The file of a source, which examples convert."""
    source, drawing = SOURCES[name], (EXAMPLES_FOLDER / "scene.svg").read_text()
    if not source.is_film:
        return convert_example(convert_example(drawing.encode(), {}, "png"), source.options, source.output_format)
    drawings = (drawing.replace(_BOAT, f"translate({x} 118)") for x in _PLACES)
    first, *others = (opened(convert_example(one.encode(), source.options, "png")) for one in drawings)
    return saved(first, "WEBP", save_all=True, append_images=others, duration=_FRAME, loop=0, lossless=True)


def convert_example(data: bytes, options: OptionValues, target: str) -> bytes:
    """The result of a conversion here. The values of options that are files are the names of static files."""
    registry = load_registry()
    files = files_of(options)
    values = {name: value for name, value in options.items() if name not in files}
    inputs = [data, *files.values()]
    sources = [registry.identify_content(one) for one in inputs]
    plan = registry.plan(sources, target, options=values, file_names=tuple(files))
    return run(plan, inputs, values).data


def files_of(options: OptionValues) -> dict[str, bytes]:
    """The files of the options that have one, by name."""
    known = load_registry().options
    names = {name: str(value) for name, value in options.items() if known[name].is_file(value)}
    return {name: (EXAMPLES_FOLDER.parent / value).read_bytes() for name, value in names.items()}


def _write() -> None:
    images = option_images()
    for name, data in images.items():
        (EXAMPLES_FOLDER / name).write_bytes(data)
    sizes = {name: sizes_of(data) for name, data in images.items()}
    (EXAMPLES_FOLDER / SIZES).write_text(json.dumps(sizes, indent=1) + "\n")


if __name__ == "__main__":
    _write()
