"""IPTC, comments and texts: kept where the target holds them, else written as XMP, or told."""

import struct
from typing import Any

import pytest
from PIL import Image, PngImagePlugin

from engine import FidelityWarning, dry_run
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._jpeg.segments import filter_segments
from plugins._metadata import iptc_data, xmp_data
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import quadrants, saved
from tests.support.samples.tagged_photo import exiftool, exiftool_of_all

_REGISTRY = load_registry()
_HOLD_IPTC = ("jpeg", "tiff", "psd")
_HOLD_XMP = ("png", "webp", "avif", "heic", "pdf")
_CAPTION, _AUTHOR, _RIGHTS, _CITY = "Brücke über die Spree", "Jürgen Müller", "© Müller", "Köln"
_KEYWORDS = ["Fluß", "bridge"]


def _dataset(record: int, number: int, value: bytes) -> bytes:
    return bytes((0x1C, record, number)) + struct.pack(">H", len(value)) + value


def _iim(encoding: str) -> bytes:
    values = [(5, "Titel"), *((25, word) for word in _KEYWORDS), (55, "20240501"), (80, _AUTHOR)]
    values += [(90, _CITY), (105, "Überschrift"), (110, "Agentur"), (115, "Quelle"), (116, _RIGHTS), (120, _CAPTION)]
    declared = _dataset(1, 90, b"\x1b%G") if encoding == "utf-8" else b""
    return declared + _dataset(2, 0, b"\0\4") + b"".join(_dataset(2, n, v.encode(encoding)) for n, v in values)


def _with_segment(image: bytes, code: int, body: bytes) -> bytes:
    return image[:2] + bytes((0xFF, code)) + struct.pack(">H", len(body) + 2) + body + image[2:]


def _photo(encoding: str = "utf-8") -> bytes:
    """A JPEG with IPTC after another resource of Photoshop with a name, and a comment."""
    other = b"8BIM" + struct.pack(">H", 1000) + b"\x03odd" + struct.pack(">I", 3) + b"abc\0"
    data = saved(quadrants((64, 48)), "JPEG", quality=90, comment="Kommentar für alle")
    return _with_segment(data, 0xED, b"Photoshop 3.0\0" + other + iptc_data.to_resources(_iim(encoding)))


def _as_xmp(tags: dict[str, Any]) -> dict[str, Any]:
    names = {
        "Title": "XMP-dc:Title",
        "Keywords": "XMP-dc:Subject",
        "By-line": "XMP-dc:Creator",
        "City": "XMP-photoshop:City",
        "Headline": "XMP-photoshop:Headline",
        "Credit": "XMP-photoshop:Credit",
        "Source": "XMP-photoshop:Source",
        "CopyrightNotice": "XMP-dc:Rights",
        "Caption-Abstract": "XMP-dc:Description",
    }
    return {name: tags.get(xmp) for name, xmp in names.items()}


_EXPECTED = {
    "Title": "Titel",
    "Keywords": _KEYWORDS,
    "By-line": _AUTHOR,
    "City": _CITY,
    "Headline": "Überschrift",
    "Credit": "Agentur",
    "Source": "Quelle",
    "CopyrightNotice": _RIGHTS,
    "Caption-Abstract": _CAPTION,
}


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_iptc_stays_or_becomes_xmp(encoding: str) -> None:
    photo = _photo(encoding)
    results = [convert(photo, target, metadata="all", **_decoded(target)) for target in (*_HOLD_IPTC, *_HOLD_XMP)]

    tags = exiftool_of_all([result.data for result in results])
    stored = [_iim(encoding) in result.data for result in results]
    assert stored == [True] * len(_HOLD_IPTC) + [False] * len(_HOLD_XMP)
    assert [_as_xmp(found) for found in tags[len(_HOLD_IPTC) :]] == [_EXPECTED] * len(_HOLD_XMP)
    assert [codes(result) & {"metadata_dropped", "location_removed"} for result in results] == [set()] * len(results)


def _decoded(target: str) -> dict[str, int]:
    """Options with which a JPEG is not embedded as it is."""
    return {"width": 60} if target in ("pdf", "jpeg") else {}


@pytest.mark.parametrize("target", [*_HOLD_IPTC, *_HOLD_XMP])
def test_safe_iptc_names_no_place(target: str) -> None:
    result = convert(_photo(), target, **_decoded(target))

    tags = exiftool(result.data)
    names = {name.partition(":")[2]: value for name, value in tags.items()}
    assert _CAPTION in names.values()
    assert _RIGHTS in names.values()
    assert _CITY.encode() not in result.data
    assert codes(result) >= {"location_removed"}


@pytest.mark.parametrize("middle", ["tiff", "psd"])
def test_iptc_is_read_from_tiff_and_psd(middle: str) -> None:
    file = convert(_photo(), middle, metadata="all").data

    assert _iim("utf-8") in convert(file, "jpeg", metadata="all").data


def test_resources_are_read_from_tiff() -> None:
    tags = {34377: iptc_data.to_resources(_iim("utf-8"))}
    data = saved(quadrants((64, 48)), "TIFF", tiffinfo=tags)

    assert _iim("utf-8") in convert(data, "psd", metadata="all").data


def test_values_of_xmp_have_precedence_and_others_are_told() -> None:
    packet = xmp_data.with_properties(None, {"dc:title": ["Titel"], "dc:description": ["Another"]})
    assert packet is not None
    photo = _photo()
    body = b"http://ns.adobe.com/xap/1.0/\0" + packet

    result = convert(_with_segment(photo, 0xE1, body), "webp", metadata="all")

    assert _as_xmp(exiftool(result.data)) == {**_EXPECTED, "Caption-Abstract": "Another"}
    assert codes(result) == {"metadata_dropped"}


@pytest.mark.parametrize("target", ["jpeg", "gif"])
def test_comments_stay(target: str) -> None:
    data = convert(_photo(), target, metadata="all").data

    assert "Kommentar für alle".encode() in data
    assert "Kommentar für alle".encode() not in convert(_photo(), target).data


_TEXTS = {"Title": "Überschrift <1>", "Author": "Müller & Söhne", "Comment": "Ein\nKommentar", "Copyright": "© 2024"}


def _png(**texts: str) -> bytes:
    info = PngImagePlugin.PngInfo()
    for number, (keyword, text) in enumerate(texts.items()):
        (info.add_text if number % 2 else info.add_itxt)(keyword, text)
    return saved(quadrants((64, 48)), "PNG", pnginfo=info)


def test_texts_of_png_stay_or_become_xmp() -> None:
    source = _png(**_TEXTS)
    results = {target: convert(source, target, metadata="all") for target in ("png", "jpeg", "webp", "tiff", "psd")}

    assert {codes(result) & {"metadata_dropped"} != set() for result in results.values()} == {False}
    tags = dict(zip(results, exiftool_of_all([result.data for result in results.values()]), strict=True))
    assert {name: tags["png"][f"PNG:{name}"] for name in _TEXTS} == _TEXTS
    assert "Title: Überschrift <1>".encode() in results["jpeg"].data
    for target in ("webp", "tiff", "psd"):
        assert tags[target]["XMP-dc:Title"] == _TEXTS["Title"]
        assert tags[target]["XMP-dc:Creator"] == _TEXTS["Author"]
        assert tags[target]["XMP-dc:Rights"] == _TEXTS["Copyright"]
        assert "Kommentar" in tags[target]["XMP-exif:UserComment"]


def test_the_loss_of_other_texts_is_told() -> None:
    data = _png(parameters="seed 1")

    assert codes(convert(data, "webp", metadata="all")) == {"metadata_dropped"}
    assert codes_before(data, "webp", metadata="all") == {"metadata_dropped"}
    assert codes(convert(data, "webp")) == set()


def _tagged(tag: int, value: str) -> bytes:
    tags = Image.Exif()
    tags[tag] = value
    return saved(quadrants((64, 48)), "JPEG", exif=tags.tobytes(), quality=90)


@pytest.mark.parametrize(
    ("data", "choice", "lost"),
    [
        (_tagged(0x010E, "Caption"), "safe", True),
        (_tagged(0x0131, "Program"), "safe", False),
        (_tagged(0x0131, "Program"), "all", True),
        (_tagged(0x013C, "Host"), "safe", False),
        (_tagged(0x010E, "Caption"), "none", False),
        (_photo(), "safe", True),
        (_photo(), "none", False),
        (saved(quadrants((64, 48)), "JPEG", comment="A comment"), "all", True),
        (saved(quadrants((64, 48)), "JPEG", comment="A comment"), "safe", False),
        (saved(quadrants((64, 48)), "JPEG", dpi=(300, 300)), "all", False),
    ],
    ids=range(10),
)
def test_what_a_target_cannot_hold_is_told(data: bytes, choice: str, *, lost: bool) -> None:
    result = convert(data, "bmp", metadata=choice)

    assert ("metadata_dropped" in codes(result)) == lost
    assert codes_before(data, "bmp", metadata=choice) == codes(result)


def codes_before(data: bytes, target: str, **options: str) -> set[str]:
    """The codes of the warnings that a dry run foresees."""
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target, options=options)
    return {warned.code for warned in dry_run.dry_run(plan, [data], options).warnings}


def test_blocks_that_are_too_large_for_a_target_are_told() -> None:
    packet = xmp_data.with_properties(None, {"dc:description": ["x" * 70_000]})
    data = saved(quadrants((64, 48)), "WEBP", xmp=packet)

    assert codes(convert(data, "jpeg")) == {"metadata_dropped"}
    assert codes(convert(data, "png")) == set()


def test_segments_are_filtered_beside_unchanged_pixels() -> None:
    photo = _photo()

    with pytest.warns(FidelityWarning, match="location_removed"):
        safe = filter_segments(photo, "safe")

    assert _CAPTION.encode() in safe
    assert _CITY.encode() not in safe
    assert b"Kommentar" not in safe
    assert _CAPTION.encode() not in filter_segments(photo, "none")
    tables_and_scan = photo[photo.index(b"\xff\xdb") :]
    assert safe.endswith(tables_and_scan)


@pytest.mark.parametrize("cut", range(0, 80, 7))
def test_damaged_iptc_ends_at_the_damage(cut: int) -> None:
    iim = _iim("utf-8")[:cut]

    assert len(iptc_data.safe_part(iim) or b"") <= cut
    assert sum(map(len, iptc_data.properties(iim))) <= cut * 20
    assert iptc_data.from_resources(iptc_data.to_resources(_iim("utf-8"))[:cut]) != b""


def test_texts_of_documents_stay() -> None:
    document = pymupdf.open()
    document.new_page()
    document.set_metadata({"title": "Bericht", "author": "Müller"})
    data = document.tobytes()

    result = convert(data, "png", metadata="all")

    tags = exiftool(result.data)
    assert (tags["PNG:Title"], tags["PNG:Author"]) == ("Bericht", "Müller")
    assert codes(result) == set()
    assert codes(convert(data, "bmp", metadata="all")) == {"metadata_dropped"}
    assert codes(convert(data, "bmp")) == set()
