"""Options of pages in a browser: how they are loaded, printed, and what an image of them shows."""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from engine.option_types import Bookmarks, Landscape, Margin, Pages, PageSize, Renderer, Scale


class Cookie(TypedDict):
    """A cookie for the host of the page."""

    name: Annotated[str, Field(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}$")]
    value: Annotated[str, Field(pattern=r"^[!#-+\--:<-\[\]-~]{0,4000}$")]


_Selector: TypeAlias = Annotated[str, Field(min_length=1, max_length=500, examples=["#chart"])]
_Template: TypeAlias = Annotated[str, Field(max_length=20_000, examples=['<span class="page"></span>'])]
Media: TypeAlias = Annotated[
    Literal["print", "screen"],
    Field(description="The medium of style sheets; by default print for pages, and screen for an image."),
]
Viewport: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^[1-9]\d{1,3}x[1-9]\d{1,3}$",
        examples=["1280x800"],
        description="Size of the window in pixels of CSS.",
    ),
]
Dark: TypeAlias = Annotated[bool, Field(description="Whether the page is asked for dark colors.")]
Scripts: TypeAlias = Annotated[bool, Field(description="Whether scripts of the page run.")]
Wait: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^(load|network_idle|\d{1,5})$",
        examples=["network_idle"],
        description="Until when the page has time: `load`, `network_idle` (half a second without a request), or "
        "milliseconds after it is loaded.",
    ),
]
WaitFor: TypeAlias = Annotated[
    _Selector, Field(description="A selector of CSS: the page has 15 seconds to show such an element.")
]
UserAgent: TypeAlias = Annotated[
    str,
    Field(pattern=r"^[ -~]{1,500}$", examples=["Mozilla/5.0"], description="The name of the browser in requests."),
]
Cookies: TypeAlias = Annotated[
    list[Cookie],
    Field(
        max_length=50,
        examples=[[{"name": "session", "value": "0123"}]],
        description="Cookies for the host of the page, as a JSON list.",
        json_schema_extra={"format": "password"},
    ),
]
FailOnStatus: TypeAlias = Annotated[
    bool, Field(description="Whether a page whose status is 400 or more is refused; else it is converted.")
]
PrintBackground: TypeAlias = Annotated[bool, Field(description="Whether backgrounds are printed.")]
HeaderHtml: TypeAlias = Annotated[
    _Template,
    Field(description="HTML in the upper margin. Elements of the class page, pages, title or date are filled."),
]
FooterHtml: TypeAlias = Annotated[_Template, Field(description="HTML in the lower margin, as `header_html`.")]
DeviceScale: TypeAlias = Annotated[
    float, Field(ge=1, le=4, examples=[2], description="Pixels of the image for a pixel of CSS, in each direction.")
]
FullPage: TypeAlias = Annotated[bool, Field(description="Whether the image has all of the page, or only the window.")]
Selector: TypeAlias = Annotated[
    _Selector, Field(description="A selector of CSS: the image has only the first such element.")
]


@dataclass(frozen=True)
class Browsing:
    """How a page is loaded."""

    renderer: Renderer = "auto"
    media: Media | None = None
    viewport: Viewport = "1280x800"
    dark: Dark = False
    scripts: Scripts = True
    wait: Wait = "load"
    wait_for: WaitFor | None = None
    user_agent: UserAgent | None = None
    cookies: Cookies | None = None
    fail_on_status: FailOnStatus = True


@dataclass(frozen=True)
class Printing:
    """How a page is printed."""

    page_size: PageSize | None = None
    landscape: Landscape | None = None
    margin: Margin | None = None
    scale: Scale | None = None
    print_background: PrintBackground = True
    header_html: HeaderHtml | None = None
    footer_html: FooterHtml | None = None
    bookmarks: Bookmarks = True
    pages: Pages | None = None


@dataclass(frozen=True)
class Picturing:
    """What an image of a page shows."""

    device_scale: DeviceScale = 1.0
    full_page: FullPage = True
    selector: Selector | None = None
