"""The examples of options on the pages of the documentation: their images are what conversions make."""

import json
import re

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from engine import RASTER
from engine.registry import Registry
from tests.support.requests import http
from tests.support.results.conversions import opened
from tests.support.samples.option_images import option_images, sizes_of
from tests.support.servers.in_process import Running, Servers
from web.docs.option_examples import EXAMPLES_FOLDER, OPTION_EXAMPLES, SIZES, SOURCES
from web.docs.option_groups import OPTION_GROUPS

_NOT_SEEN = {"metadata", "dpi", "bit_depth", "output_profile", "intent"}
_MAX_TOTAL = 300_000  # bytes
_TOLERANCE = 2.0  # mean difference in 8-bit levels


def _transform_options(registry: Registry) -> set[str]:
    """The options of changes of pixels in memory, which all formats of images have."""
    plan = registry.plan([registry.formats["png"]], registry.formats["webp"], options={})
    return {name for step in plan.transforms if step.format == RASTER for name in step.options}


def _frames(image: Image.Image) -> list[tuple[int, NDArray[np.float64]]]:
    return [
        (frame.info.get("duration", 0), np.asarray(frame.convert("RGBA"), float))
        for frame in ImageSequence.Iterator(image)
    ]


def test_options_that_are_seen_have_an_example(servers: Servers) -> None:
    examples = [example.option for example in OPTION_EXAMPLES]
    assert len(examples) == len({*examples})
    assert _transform_options(servers.registry) - {*examples} == _NOT_SEEN
    assert {*examples} <= {name for group in OPTION_GROUPS for name in group.labels}


def test_images_are_what_conversions_make() -> None:
    made = option_images()
    assert {path.name for path in EXAMPLES_FOLDER.iterdir()} == {*made, SIZES, "scene.svg"}
    assert sum(path.stat().st_size for path in EXAMPLES_FOLDER.iterdir()) <= _MAX_TOTAL
    sizes = json.loads((EXAMPLES_FOLDER / SIZES).read_text())
    for name, data in made.items():
        kept = (EXAMPLES_FOLDER / name).read_bytes()
        image, now = opened(kept), opened(data)
        assert sizes[name] == sizes_of(kept), name
        assert (image.format, image.size, image.info.get("loop")) == (now.format, now.size, now.info.get("loop"))
        for (duration, frame), (duration_now, frame_now) in zip(_frames(image), _frames(now), strict=True):
            assert duration == duration_now, name
            assert np.abs(frame - frame_now).mean() <= _TOLERANCE, name


def test_pages_show_the_examples_of_their_options(server: Running) -> None:
    shown = set()
    for group in OPTION_GROUPS:
        page = http.get(f"{server.url}/docs/options/{group.name}", timeout=60)  # the first one takes a second
        text = page.raise_for_status().text
        for path, alt in re.findall(r'<img src="([^"]+)" alt="([^"]+)" width="\d+" height="\d+" loading="lazy">', text):
            assert alt
            shown.add(path.partition("?")[0])
        examples = [example for example in OPTION_EXAMPLES if example.option in group.labels]
        for example in examples:
            assert f'<a href="#option-{example.option}">' in text
            for field in example.fields:
                assert f">{field}</span>" in text
        stills = [one for one in examples if one.source == "film" and one.option == "pages"]
        films = [one for one in examples if one.source == "film"]
        assert text.count("<summary>Play") == len(films) - len(stills) + bool(films)
    names = {one.image for one in OPTION_EXAMPLES} | {one.image(name) for name, one in SOURCES.items()}
    assert shown == {f"/static/examples/{name}" for name in names}
    response = http.get(f"{server.url}/static/examples/scene.webp")
    assert response.headers["Content-Type"] == "image/webp"
