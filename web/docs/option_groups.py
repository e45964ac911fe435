"""The options of conversions as people look for them: in groups, with labels and with the words of other programs."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class OptionGroup:
    """A group of options: labels by name. `words` are other names for the options, by name."""

    name: str
    title: str
    summary: str
    labels: Mapping[str, str]
    words: Mapping[str, str]


OPTION_GROUPS: tuple[OptionGroup, ...] = (
    OptionGroup(
        "quality",
        "Quality",
        "How good an image is, and how small its file.",
        {
            "quality": "Quality",
            "max_bytes": "Max file size",
            "lossless": "Lossless",
            "effort": "Effort",
            "progressive": "Progressive",
            "subsampling": "Chroma subsampling",
            "alpha_quality": "Transparency quality",
            "palette": "Palette",
            "colors": "Palette colors",
            "dither": "Dithering",
            "lossy": "Lossy GIF",
            "compression": "Compression",
        },
        {
            "quality": "compress compression smaller q",
            "max_bytes": "under below at most kB MB file size target limit smaller than compress",
            "lossless": "exact without loss",
            "effort": "speed slow fast compression level",
            "progressive": "interlace interlaced baseline",
            "subsampling": "chroma 420 444",
            "palette": "indexed png8 pngquant tinypng reduce colors",
            "colors": "indexed palette posterize",
            "dither": "floyd steinberg",
            "lossy": "gifsicle giflossy compress animation",
            "compression": "lzw deflate zip",
        },
    ),
    OptionGroup(
        "size",
        "Size",
        "How large the result is, and how an image fits into it.",
        {
            "width": "Width",
            "height": "Height",
            "fit": "Fit",
            "scale": "Scale",
            "enlarge": "Enlarge",
            "max_pixels": "Max pixels",
            "dpr": "Device pixel ratio",
            "dpi": "Resolution (dpi)",
            "sizes": "Icon sizes",
            "half_size": "Half size",
        },
        {
            "width": "resize thumbnail shrink scale px pixels w",
            "height": "resize thumbnail shrink scale px pixels h",
            "fit": "crop stretch letterbox object-fit square avatar",
            "scale": "percent half resize",
            "enlarge": "upscale without enlargement",
            "max_pixels": "megapixels limit area",
            "dpr": "retina 2x",
            "dpi": "density resolution ppi print",
            "sizes": "favicon icon",
        },
    ),
    OptionGroup(
        "crop",
        "Crop and rotate",
        "What is cut off, turned, and laid around or behind an image.",
        {
            "crop": "Crop",
            "gravity": "Part to keep",
            "trim": "Trim border",
            "rotate": "Rotate",
            "flip": "Mirror",
            "pad": "Padding",
            "radius": "Rounded corners",
            "background": "Background",
        },
        {
            "crop": "cut region extract aspect ratio",
            "gravity": "position focus point smart crop face anchor",
            "trim": "autocrop whitespace margin border",
            "rotate": "turn orientation degrees angle",
            "flip": "mirror flop",
            "pad": "padding border extend margin canvas",
            "radius": "round circle corners avatar",
            "background": "transparent transparency flatten white color",
        },
    ),
    OptionGroup(
        "pages",
        "Pages",
        "Pages of documents, and frames of animations and clips.",
        {
            "pages": "Pages",
            "frames": "Frames",
            "at": "Time in the clip (s)",
            "reverse": "Reverse",
            "delay": "Frame delay (ms)",
            "speed": "Speed",
            "fps": "Frame rate",
            "loop": "Repetitions",
            "page_size": "Page size",
            "landscape": "Landscape",
            "margin": "Margin (mm)",
            "font_size": "Font size",
            "encoding": "Text encoding",
            "images": "Images in text",
            "sheet": "Sheet",
            "values": "Cell values",
            "separator": "Separator",
            "bom": "Byte order mark",
            "markup": "Tracked changes",
            "comments": "Comments",
            "ocr": "OCR",
            "language": "OCR language",
            "notes": "Slide notes",
            "bookmarks": "PDF outline",
            "fit_to_width": "Fit all columns on a page",
            "single_page_sheets": "Each sheet on one page",
            "password": "File password",
            "user_password": "PDF password",
            "owner_password": "PDF owner password",
            "allow": "PDF permissions",
            "pdf_standard": "PDF standard",
        },
        {
            "pages": "page range first page split frame",
            "frames": "gif animation skip",
            "at": "video still screenshot second poster",
            "delay": "gif frame duration",
            "speed": "gif faster slower",
            "fps": "gif frames per second framerate",
            "loop": "gif repeat forever",
            "page_size": "paper a4 letter format",
            "landscape": "orientation portrait",
            "markup": "revisions insertions deletions accept reject",
            "comments": "annotations remarks",
            "ocr": "recognize scanned text",
            "language": "ocr tesseract",
            "notes": "speaker presentation",
            "bookmarks": "headings table of contents",
            "fit_to_width": "spreadsheet scale excel columns",
            "single_page_sheets": "spreadsheet excel",
            "images": "pictures embed base64 data",
            "password": "encrypted locked protected unlock",
            "user_password": "protect encrypt lock",
            "owner_password": "protect encrypt restrict",
            "allow": "permissions restrict print copy",
            "pdf_standard": "pdf/a pdf/ua archive accessible conformance",
        },
    ),
    OptionGroup(
        "browser",
        "Web pages",
        "How a browser shows pages of HTML.",
        {
            "renderer": "Renderer",
            "wait": "Wait until",
            "wait_for": "Wait for an element",
            "viewport": "Window size",
            "device_scale": "Device scale factor",
            "full_page": "Whole page",
            "selector": "Only this element",
            "media": "Media type",
            "dark": "Dark colors",
            "scripts": "Scripts",
            "print_background": "Backgrounds",
            "header_html": "Page header",
            "footer_html": "Page footer",
            "fail_on_status": "Fail on HTTP errors",
            "user_agent": "User agent",
            "cookies": "Cookies",
        },
        {
            "renderer": "chromium chrome headless weasyprint puppeteer playwright gotenberg wkhtmltopdf",
            "wait": "delay network idle javascript timeout waitDelay",
            "wait_for": "waitForSelector waitForExpression",
            "viewport": "width height screen responsive mobile window size",
            "device_scale": "retina 2x deviceScaleFactor",
            "full_page": "screenshot scroll clip",
            "selector": "screenshot element clip crop",
            "media": "emulatedMediaType print screen css",
            "dark": "prefers-color-scheme theme mode",
            "scripts": "javascript disable",
            "print_background": "printBackground colors graphics",
            "header_html": "page number title date displayHeaderFooter",
            "footer_html": "page number total pages",
            "fail_on_status": "failOnHttpStatusCodes 404 error",
            "user_agent": "userAgent",
            "cookies": "session login authentication",
        },
    ),
    OptionGroup(
        "metadata",
        "Metadata",
        "What the result says about itself: EXIF, XMP and IPTC, scripts of a PDF, and its name.",
        {"metadata": "Metadata", "sanitize": "Remove active content", "filename": "Result name"},
        {
            "filename": "rename template file name",
            "metadata": "exif gps strip location geotag privacy iptc xmp camera remove position",
            "sanitize": "javascript scripts macro safe clean",
        },
    ),
    OptionGroup(
        "color",
        "Color",
        "Color spaces and profiles, light, and filters.",
        {
            "color_space": "Color space",
            "output_profile": "Profile",
            "intent": "Rendering intent",
            "bit_depth": "Bits per sample",
            "brightness": "Brightness",
            "contrast": "Contrast",
            "saturation": "Saturation",
            "gamma": "Gamma",
            "exposure": "Exposure (stops)",
            "white_balance": "White balance",
            "raw_mode": "Camera RAW",
            "hdr": "Gain map (HDR)",
            "blur": "Blur",
            "sharpen": "Sharpen",
            "pixelate": "Pixelate",
        },
        {
            "color_space": "grayscale black and white icc profile srgb colour cmyk p3",
            "output_profile": "icc profile cmyk print fogra swop adobe rgb",
            "intent": "perceptual colorimetric icc",
            "bit_depth": "16 bit depth",
            "brightness": "lighter darker brighten",
            "saturation": "desaturate vivid grayscale",
            "white_balance": "temperature kelvin tint",
            "raw_mode": "develop preview embedded jpeg",
            "blur": "gaussian",
            "sharpen": "unsharp mask",
            "pixelate": "mosaic anonymize censor",
        },
    ),
    OptionGroup(
        "watermark",
        "Watermark",
        "An image or a text that is drawn on the result.",
        {
            "watermark": "Image",
            "watermark_text": "Text",
            "watermark_color": "Text color",
            "watermark_position": "Position",
            "watermark_size": "Size (%)",
            "watermark_margin": "Margin (%)",
            "watermark_opacity": "Opacity",
            "watermark_angle": "Angle",
        },
        {
            "watermark": "logo overlay stamp copyright",
            "watermark_text": "caption label copyright overlay",
        },
    ),
)
"""The groups, those that are used most first."""

MORE = OptionGroup("more", "More", "Options of further plugins.", {}, {})
"""The group of options that no other one names, such as options of further plugins."""


def label_of(group: OptionGroup, option: str) -> str:
    """The label of an option for people."""
    return group.labels.get(option, option.replace("_", " ").capitalize())


def label_of_option(option: str) -> str:
    """The label of an option for people, by the group that names it."""
    return label_of(next((group for group in OPTION_GROUPS if option in group.labels), MORE), option)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_Named)


def grouped(options: Iterable[Named]) -> Iterator[tuple[OptionGroup, list[Named]]]:
    """The groups that have some of the options, with these in the order of the group."""
    left = {option.name: option for option in options}
    for group in OPTION_GROUPS:
        if own := [left.pop(name) for name in group.labels if name in left]:
            yield group, own
    if left:
        yield MORE, [*left.values()]
