"""Recipes: the most frequent tasks, each as a command and as a request. Every sentence is executed by a test."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from web.docs.code_samples import LANGUAGES, PHOTOS_PROGRAM, Call


@dataclass(frozen=True)
class Recipe:
    """What to do, the sentences that explain it, the command, and a request below the URL of the API.

    `words` are other words for it, which the search finds. Instead of a request, it can have a program by language.
    """

    id: str
    title: str
    words: str
    sentences: tuple[str, ...]
    command: str
    call: Call | None = None
    programs: Mapping[str, str] = field(default_factory=dict)

    def samples(self, url: str) -> Mapping[str, str]:
        """The request by language, with the URL of the API."""
        if self.call is None:
            return {language: text.replace("{url}", url) for language, text in self.programs.items()}
        call = Call(**{**vars(self.call), "url": url + self.call.url})
        return MappingProxyType({language: write(call) for language, write in LANGUAGES.items()})


def _convert(file: str, saves: str, **form: str) -> Call:
    return Call("POST", "/convert", form, (("file", file),), saves=saves)


RECIPES: tuple[Recipe, ...] = (
    Recipe(
        "thumbnail",
        "A thumbnail",
        "resize shrink small preview image width",
        (
            "The image becomes 300 pixels wide, and keeps its aspect ratio.",
            "An image that is narrower stays as it is, with the warning `not_enlarged`.",
        ),
        "convertd convert --width 300 photo.heic thumbnail.webp",
        _convert("photo.heic", "thumbnail.webp", output_format="webp", width="300"),
    ),
    Recipe(
        "avatar",
        "A square avatar",
        "crop profile image face icon square",
        (
            "The image fills a square of 256 pixels.",
            "`gravity=attention` keeps the part that draws attention, such as a face.",
        ),
        "convertd convert --width 256 --height 256 --fit cover --gravity attention photo.heic avatar.jpg",
        _convert(
            "photo.heic",
            "avatar.jpg",
            output_format="jpeg",
            width="256",
            height="256",
            fit="cover",
            gravity="attention",
        ),
    ),
    Recipe(
        "limit",
        "An image under 200 kB",
        "compress smaller than maximum file size limit MB upload email max_bytes",
        (
            "The file has at most 200,000 bytes, at the highest quality that fits.",
            "JSON responses have that quality as `quality_used`.",
        ),
        "convertd convert --max-bytes 200000 photo.heic small.jpg",
        _convert("photo.heic", "small.jpg", output_format="jpeg", max_bytes="200000"),
    ),
    Recipe(
        "location",
        "Remove the location from a photo",
        "strip gps exif metadata privacy geotag position camera",
        (
            "By default, results have no position, serial number or owner.",
            "`metadata=none` removes all other metadata, too.",
        ),
        "convertd convert --metadata none photo.jpg clean.jpg",
        _convert("photo.jpg", "clean.jpg", output_format="jpeg", metadata="none"),
    ),
    Recipe(
        "pages",
        "PDF to images",
        "pdf to png jpg images split pages",
        (
            "Every page becomes an image with 200 pixels per inch.",
            "The response is a ZIP archive; with one page, it is the image.",
            "The command writes a file for each page, or with `--to png -o pages.zip` a ZIP archive.",
        ),
        "convertd convert --pages all --dpi 200 document.pdf page.png",
        _convert("document.pdf", "pages.zip", output_format="png", pages="all", dpi="200"),
    ),
    Recipe(
        "document",
        "Images to one PDF",
        "jpg to pdf images combine merge scan",
        (
            "Each image becomes a page, in the order of the request.",
            "JPEG data is not compressed again.",
        ),
        "convertd pdf-from-images first.jpg second.jpg -o images.pdf",
        Call(
            "POST",
            "/pdf/from-images",
            files=(("files[]", "first.jpg"), ("files[]", "second.jpg")),
            saves="images.pdf",
        ),
    ),
    Recipe(
        "small-pdf",
        "A small PDF",
        "compress shrink reduce pdf size scan email",
        (
            "Images get at most 150 pixels per inch, recompressed where that makes them smaller.",
            "Text stays text.",
        ),
        "convertd pdf-compress --dpi 100 document.pdf -o small.pdf",
        Call("POST", "/pdf/compress", {"dpi": "100"}, (("file", "document.pdf"),), saves="small.pdf"),
    ),
    Recipe(
        "folder",
        "A folder of 500 photos",
        "bulk batch directory iphone heic many files jpg retry parallel production",
        (
            "Every photo below the folder gets a JPEG beside it.",
            "The command skips other files, and lists them.",
            "The programs repeat for a while what can succeed later, which an `Idempotency-Key` charges once, "
            "and print the messages of other errors.",
        ),
        "convertd convert -r photos --to jpeg",
        programs=PHOTOS_PROGRAM,
    ),
)
"""The recipes of the quickstart."""
