"""The pictures of the examples of options, made by the conversions that they are examples of.

python -m tests.support.samples.option_pictures
"""

import json
from functools import cache

from engine import OptionValues
from engine.pipeline import run
from engine.registry import load_registry
from tests.support.results.conversions import opened
from tests.support.samples.generated import saved
from web.services.option_examples import EXAMPLES_FOLDER, OPTION_EXAMPLES, SIZES, SOURCES

_BOAT = "translate(172 118)"
_PLACES = range(40, 201, 20)  # of the boat in the frames of a film
_FRAME = 200  # milliseconds


def option_pictures() -> dict[str, bytes]:
    """The pictures by the names of their files, those of the converted files too."""
    pictures = {
        source.picture(name): _convert(_source(name), {"lossless": True, "effort": 9}, "webp")
        for name, source in SOURCES.items()
        if not source.original
    }
    for example in OPTION_EXAMPLES:
        pictures[example.picture] = _convert(_source(example.source), example.options, example.output_format)
    return pictures


def sizes_of(data: bytes) -> list[int]:
    """What is kept about a picture: width, height, bytes and number of frames."""
    picture = opened(data)
    return [*picture.size, len(data), getattr(picture, "n_frames", 1)]


@cache
def _source(name: str) -> bytes:
    """The file that examples convert."""
    source, drawing = SOURCES[name], (EXAMPLES_FOLDER / "scene.svg").read_text()
    if not source.is_film:
        return _convert(_convert(drawing.encode(), {}, "png"), source.options, source.output_format)
    drawings = (drawing.replace(_BOAT, f"translate({x} 118)") for x in _PLACES)
    first, *others = (opened(_convert(one.encode(), source.options, "png")) for one in drawings)
    return saved(first, "WEBP", save_all=True, append_images=others, duration=_FRAME, loop=0, lossless=True)


def _convert(data: bytes, options: OptionValues, target: str) -> bytes:
    registry = load_registry()
    is_file = {name: registry.options[name].is_file(value) for name, value in options.items()}
    files = {name: (EXAMPLES_FOLDER.parent / str(options[name])).read_bytes() for name in options if is_file[name]}
    values = {name: value for name, value in options.items() if not is_file[name]}
    inputs = [data, *files.values()]
    sources = [registry.identify_content(one) for one in inputs]
    plan = registry.plan(sources, target, options=values, file_names=tuple(files))
    return run(plan, inputs, values).data


def _write() -> None:
    pictures = option_pictures()
    for name, data in pictures.items():
        (EXAMPLES_FOLDER / name).write_bytes(data)
    sizes = {name: sizes_of(data) for name, data in pictures.items()}
    (EXAMPLES_FOLDER / SIZES).write_text(json.dumps(sizes, indent=1) + "\n")


if __name__ == "__main__":
    _write()
