"""Rendering of SVG with resvg."""

from io import BytesIO
from pathlib import Path

from lxml import etree
from PIL import Image
from resvg import render as _render
from resvg import usvg

from engine import CorruptInput, Size

_FONT_FOLDERS = ("/usr/share/fonts", "/usr/local/share/fonts")  # jobs may read these


def _load_options() -> usvg.Options:
    options = usvg.Options.default()
    for folder in filter(Path.is_dir, map(Path, _FONT_FOLDERS)):
        options.load_fonts_dir(str(folder))
    options.font_size = 16
    return options


_OPTIONS = _load_options()  # at import, because a fork server imports once what jobs share
FAMILIES = frozenset(_OPTIONS.list_fonts())
"""The names of the installed font families."""


def render(root: etree._Element, size: Size) -> Image.Image:
    """An SVG whose root has the size `size` as an RGBA picture. Raises CorruptInput."""
    try:
        tree = usvg.Tree.from_str(etree.tostring(root, encoding="unicode"), _OPTIONS)
        png = _render(tree, (1, 0, 0, 0, 1, 0), bg_size=size)
    except Exception as error:
        raise CorruptInput("The SVG cannot be drawn.") from error
    except BaseException as error:
        # A panic in Rust is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        raise CorruptInput("The SVG cannot be drawn.") from error
    return Image.open(BytesIO(png), formats=["PNG"])
