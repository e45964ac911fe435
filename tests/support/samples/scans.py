"""Images of printed text, as scanners make them."""

from functools import cache

from PIL import Image

from engine.mupdf import pymupdf
from tests.support.results.conversions import run_tool
from tests.support.samples.generated import saved

LINES = ("The quick brown fox", "jumps over 12 lazy dogs", "in the early morning.")
SCANNED = " ".join(LINES)
_DPI = 150


def place(line: int) -> tuple[int, int]:
    """The start of a line, which counts from 0, in points from the upper left corner."""
    return 20, 40 + 30 * line


@cache
def scan(format: str = "JPEG", turned: float = 0) -> bytes:
    """An image of the lines, turned counterclockwise by so many degrees."""
    document = pymupdf.open()
    page = document.new_page(width=216, height=144)
    for number, line in enumerate(LINES):
        page.insert_text(place(number), line, fontname="tiro", fontsize=14)
    pixels = page.get_pixmap(dpi=_DPI, colorspace=pymupdf.csGRAY)
    image = Image.frombytes("L", (pixels.width, pixels.height), pixels.samples)
    image = image.rotate(turned, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    return saved(image, format, dpi=(_DPI, _DPI))


@cache
def scanned_pdf() -> bytes:
    """A PDF of one page with the image."""
    return run_tool("pdf-from-images", scan()).data
