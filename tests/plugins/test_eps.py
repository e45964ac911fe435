"""EPS: the bounding box of programs, pages as viewers show them, and compressed images."""

import base64
import struct
from collections.abc import Callable
from functools import cache
from io import BytesIO

import numpy as np
import pikepdf
import pytest
from numpy.typing import NDArray
from pikepdf import Array, Dictionary, Name
from PIL import Image

from engine import CorruptInput, pipeline
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._jpeg.embedding import PLACEMENTS
from plugins._pdf.images.postscript import image_program
from tests.support.results import readers
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.profiles import srgb_profile, swapped_profile
from tests.support.samples.rasters import photo

_REGISTRY = load_registry()
_DRAWING = b"1 0 0 setrgbcolor 100 100 50 50 rectfill showpage\n"
_BOX = b"%%BoundingBox: 100 100 300 250\n"
_EPSF = b"%!PS-Adobe-3.0 EPSF-3.0\n"
# A box in (200, 30, 40) left of one in (20, 60, 200), with arithmetic coding, which no library here writes.
_ARITHMETIC = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIs"
    "IxwcKDcpLDAxNDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
    "MjIyMjIyMjL/yQARCAAQACADASIAAhEBAxEB/8wACgAQEAUBEBEF/9oADAMBAAIRAxEAPwD/AHJpdL3Tp4vpKO+Zon6wFcyA/9k="
)
_SIZE = (417, 313)  # 200 x 150 points at 150 dpi


@cache
def _convert(data: bytes, target: str) -> bytes:
    return convert(data, target).data


def _program(header: bytes, trailer: bytes, first: bytes = _EPSF) -> bytes:
    return first + header + b"%%EndComments\n" + _DRAWING + b"%%Trailer\n" + trailer + b"%%EOF\n"


def _binary(program: bytes) -> bytes:
    """A binary file with a preview before the program."""
    preview = b"II*\0" + bytes(60)
    start = 30 + len(preview)
    header = struct.pack("<4s6IH", b"\xc5\xd0\xd3\xc6", start, len(program), 0, 0, 30, len(preview), 0xFFFF)
    return header + preview + program


_DEFERRED = _program(b"%%BoundingBox: (atend)\n", _BOX)
_NESTED = b"%%BeginDocument: figure\n%%BoundingBox: 0 0 5 5\n%%EndDocument\n"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(_program(_BOX, b""), id="header"),
        pytest.param(_DEFERRED, id="trailer"),
        pytest.param(_program(b"%%BoundingBox:(atend)\n", _BOX), id="no space"),
        pytest.param(_DEFERRED.replace(b"\n", b"\r"), id="CR"),
        pytest.param(_DEFERRED.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(_program(b"%%BoundingBox: (atend)\n", _NESTED + _BOX), id="nested document"),
        pytest.param(_program(b"%%BoundingBox: (atend)\n", _BOX, b"%!PS-Adobe-3.0\n"), id="no EPSF"),
        pytest.param(_binary(_DEFERRED), id="binary"),
        pytest.param(b"\x04" + _DEFERRED, id="control character"),
    ],
)
def test_the_bounding_box_is_the_page(data: bytes) -> None:
    reading = readers.read("png", _convert(data, "png"))

    assert reading.size == _SIZE
    assert reading.pixels[-5, 5].tolist() == [255, 0, 0]


def test_the_exact_bounding_box_in_the_trailer_counts() -> None:
    header = b"%%HiResBoundingBox: (atend)\n%%BoundingBox: (atend)\n"
    data = _program(header, _BOX + b"%%HiResBoundingBox: 100.6 100.6 299.4 249.4\n")

    assert readers.read("png", _convert(data, "png")).size == (415, 310)


@pytest.mark.parametrize(
    ("after", "expected"),
    [(b"showpage\n", []), (b"0 0 9 9 rectfill showpage\n", ["pages_dropped"]), (b"{9 setgray showpage} loop\n", [])],
)
@pytest.mark.parametrize("target", ["pdf", "png"])
def test_only_the_first_page_is_converted(target: str, after: bytes, expected: list[str]) -> None:
    single = _program(_BOX, b"")
    plan = _REGISTRY.plan([_REGISTRY.formats["eps"]], target)

    result = pipeline.run(plan, [single.replace(_DRAWING, _DRAWING + after)])

    assert [warned.code for warned in result.outcome.warnings] == expected
    pages, alone = readers.read(target, result.data), readers.read(target, _convert(single, target))
    assert (pages.size, pages.count) == (alone.size, 1)
    np.testing.assert_array_equal(pages.pixels, alone.pixels)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        ("gsave 9 9 40 40 rectfill", " grestore"),
        pytest.param("3 dict begin 9 9 40 40 rectfill", " end", marks=pytest.mark.long),
        pytest.param("9 9 40 40 rectfill (text)", " pop showpage", marks=pytest.mark.long),
        ("9 9 40 40 rectfill currentfile 40 string readstring\n1234567", "8" * 33 + " pop pop showpage"),
    ],
)
def test_a_program_without_a_comment_at_its_end_shows_whether_it_is_complete(begun: str, rest: str) -> None:
    program = _EPSF + b"%%BoundingBox: 0 0 50 50\n" + begun.encode()

    result = convert(program + rest.encode(), "pdf")
    (page,) = pymupdf.open(stream=result.data)
    assert (codes(result), *page.rect) == (set(), 0, 0, 50, 50)
    with pytest.raises(CorruptInput, match="truncated"):
        convert(program, "pdf")


def test_a_program_that_cannot_show_whether_it_is_complete() -> None:
    program = _EPSF + b"%%BoundingBox: 0 0 50 50\n9 9 40 40 rectfill\n"

    assert codes(convert(program, "pdf")) == {"repaired"}
    assert codes(convert(program + b"%%EOF\n", "pdf")) == set()


@pytest.mark.parametrize("data", [_DEFERRED.partition(b"%%Trailer")[0], _DEFERRED[:-10], _binary(_DEFERRED)[:-1]])
def test_a_program_whose_end_is_not_in_the_file(data: bytes) -> None:
    with pytest.raises(CorruptInput, match="truncated"):
        convert(data, "pdf")


def _page(change: Callable[[pikepdf.Pdf], None] = lambda _: None) -> bytes:
    """A page of four colors and text, changed."""
    drawn = pymupdf.open()
    page = drawn.new_page(width=300, height=400)
    for index, color in enumerate([(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]):
        left, top = index % 2 * 150, index // 2 * 200
        page.draw_rect((left, top, left + 150, top + 200), color=None, fill=color)
    page.insert_text((40, 150), "Text", fontsize=40)
    file = BytesIO()
    with pikepdf.open(BytesIO(drawn.tobytes())) as document:
        change(document)
        document.save(file)
    return file.getvalue()


def _shown(data: bytes) -> NDArray[np.uint8]:
    """The first page as MuPDF draws it at 72 dpi."""
    with pymupdf.open("pdf", data) as document:
        pixels = document[0].get_pixmap(alpha=False)
        return np.frombuffer(pixels.samples, np.uint8).reshape(pixels.height, pixels.width, 3)


def _assert_shown(data: bytes) -> None:
    """Asserts that Ghostscript draws the EPS of a PDF as MuPDF draws the page."""
    actual, expected = readers.read("eps", _convert(data, "eps")).pixels.astype(int), _shown(data).astype(int)
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).mean() < 2.5


_CROP = (30, 40, 250, 300)


@pytest.mark.parametrize("rotation", [0, 90, 180, 270])
@pytest.mark.parametrize(
    ("crop", "origin", "unit"),
    [
        (None, (0, 0), 1),
        (_CROP, (-50, 100), 2),
        pytest.param(_CROP, (0, 0), 1, marks=pytest.mark.long),
        pytest.param(None, (-50, 100), 2, marks=pytest.mark.long),
    ],
)
def test_rotation_and_crop_box(rotation: int, crop: tuple[int, ...] | None, origin: tuple[int, int], unit: int) -> None:
    x, y = origin

    def change(document: pikepdf.Pdf) -> None:
        page = document.pages[0]
        page.contents_add(f"q 1 0 0 1 {x} {y} cm".encode(), prepend=True)
        page.contents_add(b"Q")
        page.MediaBox = Array([x, y, x + 300, y + 400])
        page.Rotate, page.UserUnit = rotation, unit
        if crop:
            page.CropBox = Array([crop[0] + x, crop[1] + y, crop[2] + x, crop[3] + y])

    _assert_shown(_page(change))


def test_inherited_rotation_and_crop_box_are_applied() -> None:
    def change(document: pikepdf.Pdf) -> None:
        page, pages = document.pages[0].obj, document.Root.Pages
        pages.Resources, pages.MediaBox = page.Resources, page.MediaBox
        pages.Rotate, pages.CropBox = 90, Array([30, 40, 250, 300])
        for key in {"/Resources", "/MediaBox", "/Rotate"} & set(page.keys()):
            del page[key]

    _assert_shown(_page(change))


def test_annotations_of_a_rotated_page_are_drawn() -> None:
    with pymupdf.open("pdf", _page()) as document:
        annotation = document[0].add_rect_annot((50, 200, 150, 350))
        annotation.set_colors(fill=(0, 0, 0))
        annotation.update()
        document[0].set_rotation(270)
        data = document.tobytes()

    _assert_shown(data)
    assert readers.read("eps", _convert(data, "eps")).pixels[200, 275].tolist() == [0, 0, 0]


_BLACK = b"0 g 100 100 100 200 re f"
_SHOWN_POINT = (200, 150)


def _with_layers(mark: Callable[[pikepdf.Pdf, pikepdf.Object, pikepdf.Object], None]) -> bytes:
    """A page with a black box; `mark` gets the document, a visible and a hidden layer."""

    def change(document: pikepdf.Pdf) -> None:
        shown, hidden = (document.make_indirect(Dictionary(Type=Name.OCG, Name=name)) for name in ("shown", "hidden"))
        document.Root.OCProperties = Dictionary(OCGs=Array([shown, hidden]), D=Dictionary(OFF=Array([hidden])))
        mark(document, shown, hidden)

    return _page(change)


def _content(*layers: tuple[str, Callable[[pikepdf.Object, pikepdf.Object], pikepdf.Object]]) -> bytes:
    """A page whose box is in nested sections of the layers that the functions return."""

    def mark(document: pikepdf.Pdf, shown: pikepdf.Object, hidden: pikepdf.Object) -> None:
        page = document.pages[0]
        page.Resources.Properties = Dictionary(
            {f"/{name}": document.make_indirect(layer(shown, hidden)) for name, layer in layers}
        )
        begin = b"".join(f"/OC /{name} BDC ".encode() for name, _ in layers)
        page.contents_add(begin + _BLACK + b" EMC" * len(layers))

    return _with_layers(mark)


def _membership(policy: Name) -> Callable[[pikepdf.Object, pikepdf.Object], pikepdf.Object]:
    return lambda shown, hidden: Dictionary(Type=Name.OCMD, OCGs=Array([shown, hidden]), P=policy)


def _not_shown(shown: pikepdf.Object, hidden: pikepdf.Object) -> pikepdf.Object:
    return Dictionary(Type=Name.OCMD, VE=Array([Name.Not, shown]))


def _not_hidden(shown: pikepdf.Object, hidden: pikepdf.Object) -> pikepdf.Object:
    return Dictionary(Type=Name.OCMD, VE=Array([Name.And, Array([Name.Not, hidden]), shown]))


def _form(document: pikepdf.Pdf, layer: pikepdf.Object) -> None:
    page = document.pages[0]
    form = document.make_stream(_BLACK, Type=Name.XObject, Subtype=Name.Form, BBox=Array([0, 0, 300, 400]), OC=layer)
    page.Resources.XObject = Dictionary(Form=form)
    page.contents_add(b"/Form Do")


def _image(document: pikepdf.Pdf, layer: pikepdf.Object) -> None:
    page = document.pages[0]
    image = document.make_stream(b"\0", Type=Name.XObject, Subtype=Name.Image, Width=1, Height=1, BitsPerComponent=8)
    image.ColorSpace, image.OC = Name.DeviceGray, layer
    page.Resources.XObject = Dictionary(Image=image)
    page.contents_add(b"q 100 0 0 200 100 100 cm /Image Do Q")


def _annotation(document: pikepdf.Pdf, layer: pikepdf.Object) -> None:
    look = document.make_stream(_BLACK, Type=Name.XObject, Subtype=Name.Form, BBox=Array([100, 100, 200, 300]))
    annotation = Dictionary(Type=Name.Annot, Subtype=Name.Stamp, Rect=Array([100, 100, 200, 300]), F=4, OC=layer)
    annotation.AP = Dictionary(N=look)
    document.pages[0].Annots = Array([document.make_indirect(annotation)])


def _by_usage(document: pikepdf.Pdf, shown: pikepdf.Object, hidden: pikepdf.Object) -> None:
    shown.Usage = Dictionary(View=Dictionary(ViewState=Name.OFF))
    _form(document, shown)


def _by_base_state(document: pikepdf.Pdf, shown: pikepdf.Object, hidden: pikepdf.Object) -> None:
    document.Root.OCProperties.D = Dictionary(BaseState=Name.OFF, ON=Array([hidden]))
    _form(document, shown)


_HIDDEN = {
    "content": lambda: _content(("A", lambda shown, hidden: hidden)),
    "nested": lambda: _content(("A", lambda shown, hidden: hidden), ("B", lambda shown, hidden: shown)),
    "all on": lambda: _content(("A", _membership(Name.AllOn))),
    "all off": lambda: _content(("A", _membership(Name.AllOff))),
    "expression": lambda: _content(("A", _not_shown)),
    "form": lambda: _with_layers(lambda document, shown, hidden: _form(document, hidden)),
    "image": lambda: _with_layers(lambda document, shown, hidden: _image(document, hidden)),
    "annotation": lambda: _with_layers(lambda document, shown, hidden: _annotation(document, hidden)),
    "usage": lambda: _with_layers(_by_usage),
    "base state": lambda: _with_layers(_by_base_state),
}
_VISIBLE = {
    "content": lambda: _content(("A", lambda shown, hidden: shown)),
    "any on": lambda: _content(("A", _membership(Name.AnyOn))),
    "any off": lambda: _content(("A", _membership(Name.AnyOff))),
    "expression": lambda: _content(("A", _not_hidden)),
    "form": lambda: _with_layers(lambda document, shown, hidden: _form(document, shown)),
    "image": lambda: _with_layers(lambda document, shown, hidden: _image(document, shown)),
    "annotation": lambda: _with_layers(lambda document, shown, hidden: _annotation(document, shown)),
}


@pytest.fixture(scope="module")
def without_layers() -> NDArray[np.uint8]:
    """The page without the box, as Ghostscript draws its EPS."""
    return readers.read("eps", _convert(_page(), "eps")).pixels


@pytest.mark.parametrize("make", _HIDDEN.values(), ids=_HIDDEN)
def test_hidden_layers_are_hidden(make: Callable[[], bytes], without_layers: NDArray[np.uint8]) -> None:
    assert np.array_equal(readers.read("eps", _convert(make(), "eps")).pixels, without_layers)


@pytest.mark.parametrize("make", _VISIBLE.values(), ids=_VISIBLE)
def test_visible_layers_are_drawn(make: Callable[[], bytes]) -> None:
    assert readers.read("eps", _convert(make(), "eps")).pixels[_SHOWN_POINT].tolist() == [0, 0, 0]


def test_an_encrypted_page_is_written() -> None:
    file = BytesIO()
    with pikepdf.open(BytesIO(_page())) as document:
        document.save(file, encryption=pikepdf.Encryption(owner="owner", user=""))

    _assert_shown(file.getvalue())


def _photo(mode: str) -> Image.Image:
    return quadrants((600, 400)).effect_spread(9).convert(mode)


@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_a_jpeg_is_embedded_with_unchanged_pixels(mode: str, progressive: bool) -> None:
    data = saved(_photo(mode), "JPEG", quality=90, progressive=progressive)
    made = _convert(data, "eps")

    assert len(made) < 1.3 * len(data) + 1000
    expected = readers.read("png", _convert(data, "png")).pixels.astype(int)
    assert np.abs(readers.read("eps", made).pixels - expected).mean() < 1


def test_a_jpeg_in_srgb_is_embedded_and_one_with_another_profile_is_converted() -> None:
    srgb = srgb_profile()
    photo = _photo("RGB")
    plain, in_srgb, swapped = (
        saved(photo, "JPEG", quality=90, icc_profile=profile) for profile in (None, srgb, swapped_profile())
    )

    embedded, converted = (readers.read("eps", _convert(data, "eps")).pixels.astype(int) for data in (in_srgb, swapped))

    assert np.array_equal(embedded, readers.read("eps", _convert(plain, "eps")).pixels)
    assert np.abs(converted - readers.read("bmp", _convert(swapped, "bmp")).pixels).mean() < 3
    assert np.abs(converted - embedded).mean() > 20


@pytest.mark.parametrize("target", ["eps", "pdf"])
def test_a_jpeg_that_few_readers_decode_is_encoded_again(target: str) -> None:
    reading = readers.read(target, _convert(_ARITHMETIC, target))

    assert np.abs(reading.pixels[5, 3].astype(int) - (200, 30, 40)).max() < 8
    assert np.abs(reading.pixels[5, -3].astype(int) - (20, 60, 200)).max() < 8


@pytest.mark.parametrize("mode", ["1", "L", "RGB", "CMYK"])
def test_images_without_loss_are_compressed_and_unchanged(mode: str) -> None:
    image = quadrants((400, 240)).effect_spread(3).convert(mode)
    data = saved(image, "TIFF")
    made = _convert(data, "eps")

    assert len(made) < 0.7 * len(data)
    made.decode("ascii")
    if mode == "CMYK":  # Ghostscript would convert its colors
        with pymupdf.open("pdf", _convert(made, "pdf")) as document:
            assert pymupdf.Pixmap(document, document[0].get_images()[0][0]).samples == image.tobytes()
    else:
        assert np.array_equal(readers.read("eps", made).pixels, np.asarray(image.convert("RGB")))


@pytest.mark.parametrize("length", range(9))
def test_data_of_any_length_is_kept(length: int) -> None:
    data = bytes(range(250, 250 - length, -1))
    program = image_program(
        data, filter_="/SubFileDecode", size=(1, 1), mode="L", page=(1, 1), matrix=PLACEMENTS[1](1, 1)
    )
    encoded = program.partition(b"} exec\n")[2].partition(b"restore")[0]

    assert base64.a85decode(b"<~" + encoded.strip(), adobe=True) == data


def test_no_line_of_data_is_a_comment() -> None:
    image = Image.effect_noise((300, 300), 90)

    lines = _convert(saved(image, "PNG"), "eps").partition(b"} exec\n")[2].splitlines()

    assert [line for line in lines if line.startswith(b"%")] == [b"%%EOF"]


@pytest.mark.parametrize(("source", "orientation"), [("JPEG", 1), ("JPEG", 6), ("PNG", 1)])
def test_images_have_the_size_of_their_resolution(source: str, orientation: int) -> None:
    tags = Image.Exif()
    tags[0x0112] = orientation
    image = photo((150, 100))
    data = saved(image, source, exif=tags.tobytes())
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], "eps", options={"dpi": 144})

    result = pipeline.run(plan, [data], {"dpi": 144})

    size = (75, 50) if orientation == 1 else (50, 75)
    with pymupdf.open("pdf", _convert(result.data, "pdf")) as document:
        assert tuple(document[0].rect.br) == pytest.approx(size, abs=0.1)
    assert b"/DCTDecode" in result.data or source == "PNG"
    assert [step for step in plan.step_names if "-> jpeg" in step] == []  # not encoded again
    assert result.outcome.warnings == ()
