"""Images of SVGs, compared with those of Chromium."""

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image, ImageFilter

from engine import pipeline
from engine.registry import load_registry
from tests.support.browser import running_browser
from tests.support.samples.corpus import CORPUS, load_corpus

_REGISTRY = load_registry()
_BLUR = 1.5  # pixels; edges and hinting differ
_VISIBLE = 32  # levels of 255
_SHARE_OF_PIXELS = 0.01


def _drawings() -> dict[str, bytes]:
    """Drawings in the manner of the programs that write most SVGs, and the SVGs of the corpus."""
    files = [*(Path(__file__).parent / "drawings").glob("*.svg"), *(CORPUS.parent / "hard").glob("*.svg")]
    files += [entry.path for entry in load_corpus() if entry.sound and entry.format == "svg"]
    return {str(path): path.read_bytes() for path in sorted(files)}


def _drawn_by_browser(drawings: Mapping[str, bytes], sizes: Mapping[str, tuple[int, int]]) -> dict[str, Image.Image]:
    """The images of one screenshot, on which they lie below each other. Leaves out those that Chromium refuses."""
    place = '<img style="display:block;width:{}px;height:{}px" src="data:image/svg+xml;base64,{}">'
    page_text = "".join(place.format(*sizes[name], base64.b64encode(data).decode()) for name, data in drawings.items())
    with running_browser() as browser:
        page = browser.new_page(viewport={"width": 1000, "height": 1000})
        page.set_content(f"<style>*{{margin:0}}</style>{page_text}", wait_until="load")
        refused = page.evaluate("[...document.images].map(image => image.naturalWidth === 0)")
        sheet = Image.open(BytesIO(page.screenshot(full_page=True))).convert("RGB")
    top, images = 0, {}
    for name, missing in zip(drawings, refused, strict=True):
        width, height = sizes[name]
        if not missing:
            images[name] = sheet.crop((0, top, width, top + height))
        top += height
    return images


def _share_of_different_pixels(first: Image.Image, second: Image.Image) -> float:
    arrays = [np.asarray(image.filter(ImageFilter.GaussianBlur(_BLUR)), np.int16) for image in (first, second)]
    return float((np.abs(arrays[0] - arrays[1]).max(axis=-1) > _VISIBLE).mean())


def _differences(own: Mapping[str, Image.Image], shown: Mapping[str, Image.Image]) -> dict[str, float]:
    """The share of pixels of those that are visibly different."""
    shares = {name: _share_of_different_pixels(image, own[name]) for name, image in shown.items()}
    return {name: round(share, 3) for name, share in shares.items() if share > _SHARE_OF_PIXELS}


def test_images_and_redrawn_svgs_look_as_in_a_browser() -> None:
    """At most one in ten is visibly different, and none is refused. A redrawn SVG is shown as the image."""
    drawings, own, redrawn = _drawings(), {}, {}
    to_png, to_svg = (_REGISTRY.plan([_REGISTRY.formats["svg"]], target) for target in ("png", "svg"))
    for name, data in drawings.items():
        drawn = Image.open(BytesIO(pipeline.run(to_png, [data]).data)).convert("RGBA")
        own[name] = Image.alpha_composite(Image.new("RGBA", drawn.size, "white"), drawn).convert("RGB")
        redrawn[name] = pipeline.run(to_svg, [data]).data
    sizes = {name: image.size for name, image in own.items()}

    expected, shown = _drawn_by_browser(drawings, sizes), _drawn_by_browser(redrawn, sizes)

    assert len(expected) >= 48
    assert shown.keys() == own.keys()
    different, different_redrawn = _differences(own, expected), _differences(own, shown)
    assert len(different) <= len(expected) / 10, different
    assert len(different_redrawn) <= len(shown) / 20, different_redrawn
