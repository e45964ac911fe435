"""Types of the options that several plugins share: each is a type, a range and a sentence for clients.

An option that only one plugin has is declared in that plugin.
"""

import codecs
import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field

from engine import color
from engine.decode_limits import MAX_PIXELS
from engine.options import Inherited
from engine.page_ranges import PageRanges

_ENCODINGS = re.compile(
    r"utf-8|utf-16|cp12\d\d|cp8\d\d|cp437|cp932|cp949|iso8859-\d{1,2}|koi8-[ru]|gb2312|gbk|gb18030|big5|euc_kr|euc_jp|shift_jis"
)
SHARE = r"(0|1|0?\.\d{1,6}|1\.0{1,6})"
"""A pattern of numbers from 0 to 1."""
_PERCENT = r"\d{1,3}(\.\d{1,4})?%"
_OFFSET = rf"(\d{{1,6}}|{_PERCENT})"
_LENGTH = rf"([1-9]\d{{0,5}}|{_PERCENT})"
_RATIO = r"[1-9]\d{0,3}(\.\d{1,4})?"


def _check_encoding(text: str) -> str:
    try:
        name = codecs.lookup(text).name
    except LookupError:
        name = ""
    if not _ENCODINGS.fullmatch(name):
        raise ValueError("must be the name of an encoding, such as windows-1251.")
    return text


def _check_pages(text: str) -> str:
    PageRanges.parse(text)
    return text


def _check_color(text: str) -> str:
    color.parse(text)
    return text


Quality: TypeAlias = Annotated[
    int,
    Field(
        ge=1,
        le=100,
        examples=[80],
        description="Quality of a lossy encoder; higher is better and larger. A JPEG as JPEG keeps its own by default.",
    ),
]
Lossless: TypeAlias = Annotated[
    bool,
    Field(
        description="Keeps every pixel exactly. Without `quality`, a lossless file stays lossless in its own format."
    ),
]
Effort: TypeAlias = Annotated[
    int, Field(ge=1, le=9, examples=[7], description="Higher is slower and smaller, at the same quality.")
]
Progressive: TypeAlias = Annotated[
    bool,
    Field(
        description="Lets viewers show the image before it is complete. By default only for large JPEG images, which "
        "become smaller."
    ),
]
Subsampling: TypeAlias = Annotated[
    Literal["4:2:0", "4:2:2", "4:4:4"],
    Field(
        description="4:4:4 keeps the resolution of colors, 4:2:2 halves their width, 4:2:0 width and height. By "
        "default 4:2:0, for JPEG with a quality below 90."
    ),
]
Colors: TypeAlias = Annotated[
    int, Field(ge=2, le=256, examples=[64], description="Most colors of a palette, of GIF or PNG; implies `palette`.")
]
Dither: TypeAlias = Annotated[
    float,
    Field(
        ge=0,
        le=1,
        examples=[0.5],
        description="How much the colors of a palette are mixed; 0 is not at all. By default 1, in animations 0.",
    ),
]
Lossy: TypeAlias = Annotated[
    int,
    Field(
        ge=1,
        le=200,
        examples=[40],
        description="How far pixels of an animation may stray for a smaller file, on the scale of gifsicle: 20 is hard "
        "to see, 80 is not.",
    ),
]
BitDepth: TypeAlias = Annotated[Literal[8, 10, 12, 16], Field(description="Bits per sample of the result.")]
ColorSpace: TypeAlias = Annotated[
    Literal["keep", "srgb", "gray"], Field(description="Color space into which the pixels are converted.")
]
Width: TypeAlias = Annotated[
    int,
    Field(ge=1, le=65_535, examples=[800], description="Width in pixels; without `height`, the aspect ratio is kept."),
]
Height: TypeAlias = Annotated[
    int,
    Field(ge=1, le=65_535, examples=[600], description="Height in pixels; without `width`, the aspect ratio is kept."),
]
Fit: TypeAlias = Annotated[
    Literal["inside", "outside", "cover", "contain", "fill"],
    Field(description="How the image fits `width` and `height`; as object-fit of CSS."),
]
Enlarge: TypeAlias = Annotated[bool, Field(description="Whether an image may become larger than its source.")]
Gravity: TypeAlias = Annotated[
    str,
    Field(
        pattern=rf"^(attention|center|(north|south)(east|west)?|east|west|\s*{SHARE}\s*,\s*{SHARE}\s*)$",
        examples=["attention", "north", "0.3,0.7"],
        description="What `cover` and a `crop` by ratio keep, and the position in `contain`: center, north, northeast "
        "and so on; the point x,y (0 to 1), as near to the middle as the edges allow; or attention, where "
        "saturation, edges and skin are strongest.",
    ),
]
Crop: TypeAlias = Annotated[
    str,
    Field(
        pattern=rf"^\s*({_OFFSET}\s*,\s*{_OFFSET}\s*,\s*{_LENGTH}\s*,\s*{_LENGTH}|{_RATIO}\s*:\s*{_RATIO})\s*$",
        examples=["0,0,640,480", "10%,10%,80%,80%", "16:9"],
        description="x,y,width,height in pixels or percent of the upright input, or a ratio such as 16:9, placed by "
        "`gravity`; applied before resizing.",
    ),
]
Trim: TypeAlias = Annotated[
    float,
    Field(
        ge=0,
        le=100,
        examples=[10],
        description="Removes the border that has the color of the corner, or is transparent, up to this difference in "
        "percent; applied before `crop`.",
    ),
]
Scale: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^\s*([1-9]\d{0,2}|1000)(\.\d{1,4})?\s*%\s*$",
        examples=["50%"],
        description="Size in percent of the image, 1% to 1000%, where no `width` or `height` is given; of what a "
        "browser prints, 10% to 200%.",
    ),
]
Dpr: TypeAlias = Annotated[
    float, Field(ge=1, le=4, examples=[2], description="Device pixel ratio, which multiplies `width` and `height`.")
]
MaxPixels: TypeAlias = Annotated[
    int,
    Field(ge=1, le=MAX_PIXELS, examples=[1_000_000], description="Most pixels of the resized image, width x height."),
]
Rotate: TypeAlias = Annotated[Literal[0, 90, 180, 270], Field(description="Degrees clockwise.")]
Flip: TypeAlias = Annotated[Literal["horizontal", "vertical"], Field(description="Mirrors the image.")]
Background: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(#[0-9a-fA-F]{3}|#[0-9a-fA-F]{6}|#[0-9a-fA-F]{8}|[A-Za-z]{3,30})$",
        examples=["#ffffff"],
        description="#rgb, #rrggbb, #rrggbbaa or a CSS color name; replaces transparency and pads `contain`.",
    ),
    AfterValidator(_check_color),
]
Exposure: TypeAlias = Annotated[
    float,
    Field(ge=-10, le=10, examples=[1], description="Brightens or darkens images with linear light, in stops."),
]
Dpi: TypeAlias = Annotated[
    int,
    Field(
        ge=18,
        le=1200,
        examples=[300],
        description="Resolution at which pages and vectors become pixels, and which is written into images.",
    ),
]
Encoding: TypeAlias = Annotated[
    str,
    Field(
        max_length=40,
        examples=["windows-1251"],
        description="Encoding of a text, such as windows-1251, koi8-r or gbk; without it, it is recognized.",
    ),
    AfterValidator(_check_encoding),
]
Pages: TypeAlias = Annotated[
    str,
    Field(
        max_length=1000,
        examples=["2-5,8"],
        description="Pages or frames from 1, such as 1, 2-5,8, 3- or all, in the order given.",
    ),
    AfterValidator(_check_pages),
]
Position: TypeAlias = Annotated[
    Literal["center", "north", "northeast", "east", "southeast", "south", "southwest", "west", "northwest"],
    Field(description="Where something is drawn on the page."),
]
PageSize: TypeAlias = Annotated[
    Literal["a3", "a4", "a5", "a6", "letter", "legal", "tabloid"],
    Field(description="Size of the pages on which text is laid out."),
]
Landscape: TypeAlias = Annotated[bool, Field(description="Whether the pages are wider than high.")]
Margin: TypeAlias = Annotated[float, Field(ge=0, le=200, description="Distance to the edges of the page in mm.")]
Bookmarks: TypeAlias = Annotated[bool, Field(description="Whether headings become the outline of a PDF.")]
Renderer: TypeAlias = Annotated[
    Literal["auto", "print", "browser"],
    Field(
        description="What lays out a page of HTML: a browser, which also runs its scripts, or `print`, which has all "
        "of CSS for pages. `auto` is the browser where one is installed."
    ),
]
FontSize: TypeAlias = Annotated[
    float, Field(ge=4, le=72, examples=[14], description="Size of text in points; headings are larger in proportion.")
]
Images: TypeAlias = Annotated[
    Literal["embed", "drop", "zip"],
    Field(description="Where a text has the images of its source: inside, as data, nowhere, or beside it in a ZIP."),
]
Metadata: TypeAlias = Annotated[
    Literal["all", "safe", "none"],
    Field(description="`safe` removes position, serial numbers, owner, maker notes and thumbnails."),
]
Hdr: TypeAlias = Annotated[
    Literal["keep", "drop"],
    Field(description="Whether the gain map stays, which makes an image brighter on screens with HDR."),
]
Sanitize: TypeAlias = Annotated[
    bool,
    Field(description="Removes scripts, embedded programs and other active content from the PDF. Links stay."),
]
Comments: TypeAlias = Annotated[bool, Field(description="Whether comments become notes.")]
Notes: TypeAlias = Annotated[
    bool,
    Field(description="Whether the result has the notes of the speaker: after each slide, or on pages at the end."),
]
Markup: TypeAlias = Annotated[
    Literal["final", "original", "all"],
    Field(description="Text of tracked changes: as they leave it, as it was before, or all of it, with marks."),
]
Sheet: TypeAlias = Annotated[
    str, Field(min_length=1, max_length=255, examples=["2"], description="Name or number of the only sheet.")
]
Password: TypeAlias = Annotated[
    str,
    Field(
        max_length=128,
        examples=["secret"],
        description="Opens an encrypted file. `user_password` and `owner_password` protect a PDF.",
        json_schema_extra={"format": "password"},
    ),
]
PdfStandard: TypeAlias = Annotated[
    Literal["none", "pdfa-2b", "pdfa-3b", "pdfua-1"],
    Field(
        description="Standard of a PDF: PDF/A-2b, or 3b with attached files; or PDF/UA-1, which is accessible, of "
        "texts, slides and HTML. A result that cannot conform is refused."
    ),
]
ResultStandard: TypeAlias = Annotated[PdfStandard, Inherited()]
"""The standard that the result will have, for steps before."""
InputPassword: TypeAlias = Annotated[Password, Inherited()]
"""The password that opened the input, for steps whose payload keeps the encryption of the input."""
