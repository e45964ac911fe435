"""Geometry through the whole pipeline: decoders use the requested size, vectors are drawn at it, JPEG is filtered."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pikepdf
import pytest
from PIL import Image

from engine import InvalidOption, OptionValues, TooLarge, pipeline
from engine.executor import LocalExecutor, Task
from engine.mupdf import pymupdf
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from plugins._jpeg.segments import filter_segments
from plugins.formats.pdf import DPI
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import opened
from tests.support.samples.generated import SIZE, quadrants, sample, saved
from tests.support.samples.tagged_photo import exiftool, tagged_photo

_REGISTRY = load_registry()


def _convert(data: bytes, target: str, **options: str | float | bool) -> PipelineResult:
    given: OptionValues = _REGISTRY.validate(options)
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target, options=given)
    return pipeline.run(plan, [data], given)


def _jpeg(image: Image.Image, orientation: int = 1) -> bytes:
    tags = Image.Exif()
    tags[0x0112] = orientation
    return saved(image, "JPEG", quality=95, subsampling="4:4:4", exif=tags.tobytes())


def _difference(first: Image.Image, second: Image.Image) -> float:
    arrays = [np.asarray(image.convert("RGB"), float) for image in (first, second)]
    return float(np.abs(arrays[0] - arrays[1]).mean())


@pytest.mark.parametrize("orientation", [1, 6, 8])
@pytest.mark.parametrize(
    "options",
    [
        {"width": 100},
        {"height": 61},
        {"width": 64, "height": 64, "fit": "cover"},
        {"width": 64, "height": 64, "fit": "contain"},
        {"width": 50, "height": 90, "fit": "fill"},
        {"width": 90, "crop": "301,200,411,333"},
        {"width": 90, "rotate": 90, "crop": "10,20,400,700"},
        {"width": 50, "flip": "horizontal"},
    ],
)
def test_a_jpeg_gives_the_same_as_a_lossless_image(orientation: int, options: dict[str, str | int]) -> None:
    stored = quadrants((1601, 1067))
    data = _jpeg(stored, orientation)
    turns = {1: None, 6: Image.Transpose.ROTATE_270, 8: Image.Transpose.ROTATE_90}
    turn = turns[orientation]
    upright = saved(stored.transpose(turn) if turn is not None else stored, "PNG")

    seen = opened(_convert(data, "png", **options).data)
    expected = opened(_convert(upright, "png", **options).data)

    assert seen.size == expected.size
    assert _difference(seen, expected) < 3


def test_a_jpeg_is_decoded_at_the_scale_that_is_needed() -> None:
    (decode, *_) = _REGISTRY.plan([_REGISTRY.formats["jpeg"]], "png").steps
    data = _jpeg(quadrants((1600, 1200)))

    rasters = [decode(data, {"width": width}) for width in (90, 200, 401, 1600)]

    assert [raster.sizes for raster in rasters] == [[(1600, 1200)]] * 4
    sizes = [raster.drawn_sizes or raster.sizes for raster in rasters]
    assert sizes == [[(200, 150)], [(400, 300)], [(1600, 1200)], [(1600, 1200)]]


@pytest.mark.parametrize("source", ["pdf", "svg", "eps"])
@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"width": 1000}, (1000, 714)),
        ({"height": 1001}, (1401, 1001)),
        ({"width": 300, "height": 300}, (300, 214)),
        ({"width": 300, "height": 300, "fit": "cover"}, (300, 300)),
        ({"width": 300, "height": 300, "fit": "contain"}, (300, 300)),
        ({"width": 300, "height": 300, "fit": "fill"}, (300, 300)),
        ({"width": 400, "crop": "0,0,80,50"}, (400, 250)),
        ({"width": 500, "rotate": 90}, (500, 700)),
        ({"crop": "10,20,30,40"}, (30, 40)),
    ],
)
def test_vectors_have_the_requested_size(source: str, options: dict[str, str | int], size: tuple[int, int]) -> None:
    image = opened(_convert(sample(source), "png", **options).data).convert("RGB")

    assert image.size == size
    if "crop" not in options and options.get("fit") != "contain":
        corners = [image.getpixel((x, y)) for x in (0, size[0] - 1) for y in (0, size[1] - 1)]
        expected = [(220, 30, 40), (40, 60, 210), (30, 180, 60), (128, 128, 128)]
        if "rotate" in options:
            expected = [expected[1], expected[3], expected[0], expected[2]]
        assert np.abs(np.array(corners) - np.array(expected)).max() < 20
    if "fit" not in options and "crop" not in options:  # drawn, not enlarged: edges are sharp
        assert len(image.getcolors(1000) or ()) <= 20


@pytest.mark.parametrize(("source", "dots"), [("pdf", 72), ("svg", 96), ("eps", 72)])
def test_vectors_are_drawn_at_the_resolution(source: str, dots: int) -> None:
    for dpi in (48, 96, 300):
        image = opened(_convert(sample(source), "png", dpi=dpi).data)
        assert image.size == tuple(round(side * dpi / dots) for side in SIZE)
        assert image.info["dpi"] == pytest.approx((dpi, dpi), abs=0.1)
    default = opened(_convert(sample(source), "png").data)
    assert default.info["dpi"] == pytest.approx((96, 96) if source == "svg" else (DPI, DPI), abs=0.1)
    wide = opened(_convert(sample(source), "png", width=2 * SIZE[0]).data)
    assert wide.info["dpi"] == pytest.approx((2 * dots, 2 * dots), abs=0.5)


@pytest.mark.parametrize("source", ["pdf", "svg", "eps"])
@pytest.mark.parametrize("options", [{}, {"width": 90}, {"rotate": 90}, {"height": 33, "rotate": 270}])
def test_a_crop_of_vectors_shows_what_it_would_of_the_whole(source: str, options: dict[str, int]) -> None:
    whole = opened(_convert(sample(source), "png", dpi=200).data)
    box = (whole.width // 3, whole.height // 4, whole.width // 2, whole.height // 2)
    expected = _convert(saved(whole, "PNG"), "png", crop=",".join(map(str, box)), enlarge=True, **options)
    found = _convert(sample(source), "png", dpi=200, crop=",".join(map(str, box)), **options)
    assert opened(found.data).size == opened(expected.data).size
    assert _difference(opened(found.data), opened(expected.data)) < 3


def test_only_the_crop_is_drawn() -> None:
    """The whole image would have 30,000 x 20,000 pixels, more than a result can have."""
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="2400" height="1600"><rect width="1200" height="800"/></svg>'
    page = pymupdf.open()
    page.new_page(width=1800, height=1200).draw_rect((0, 0, 900, 600), fill=(0, 0, 0))
    for data in (svg, bytes(page.tobytes())):
        with pytest.raises(TooLarge):
            _convert(data, "png", dpi=1200)
        image = opened(_convert(data, "png", dpi=1200, crop="14900,9900,200,200").data).convert("LA").convert("RGBA")
        assert image.size == (200, 200)
        shades = [image.getpixel((x, y)) for x in (10, 190) for y in (10, 190)]
        assert shades[0] == (0, 0, 0, 255) != shades[1] == shades[2] == shades[3]


def test_pages_stay_documents() -> None:
    result = _convert(sample("pdf"), "pdf", width=100)

    assert [warned.code for warned in result.outcome.warnings] == ["option_ignored"]


@pytest.mark.parametrize("source", ["jpeg", "png", "tiff", "gif", "webp", "pdf", "svg"])
def test_a_crop_outside_of_a_reduced_image_is_refused(source: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        _convert(sample(source), "webp", crop="0,0,9000,10", width=10)

    assert caught.value.param == "crop"


@pytest.mark.asyncio(loop_scope="session")
async def test_options_work_in_the_sandbox(executor: LocalExecutor, tmp_path: Path) -> None:
    source, target = tmp_path / "photo.jpg", tmp_path / "photo.png"
    source.write_bytes(tagged_photo())
    options: OptionValues = {"width": 50, "rotate": 90, "background": "red", "color_space": "gray", "bit_depth": 16}
    plan = _REGISTRY.plan([_REGISTRY.formats["jpeg"]], "png", options=options)

    await run_files(executor, FileJob(Task.of(plan, options), [source], target))

    tags = exiftool(target.read_bytes())
    assert (tags["PNG:ImageWidth"], tags["PNG:BitDepth"], tags["PNG:ColorType"]) == (50, 16, "Grayscale")
    assert "XMP-dc:Creator" in tags
    assert not [name for name in tags if "GPS" in name]


@pytest.mark.parametrize("choice", ["all", "safe", "none"])
def test_a_jpeg_in_a_pdf_is_filtered(choice: str) -> None:
    result = _convert(tagged_photo(), "pdf", metadata=choice)

    with pikepdf.open(BytesIO(result.data)) as document:
        (embedded,) = document.pages[0].get_images().values()
        data = embedded.read_raw_bytes()
    tags = exiftool(data)
    assert any("GPS" in name for name in tags) == (choice == "all")
    assert ("ExifIFD:DateTimeOriginal" in tags) == (choice != "none")
    assert _difference(opened(data), opened(tagged_photo())) == 0
    assert opened(data).info["icc_profile"] == opened(tagged_photo()).info["icc_profile"]
    assert [warned.code for warned in result.outcome.warnings] == (["location_removed"] if choice == "safe" else [])


@pytest.mark.parametrize("choice", ["all", "safe", "none"])
@pytest.mark.parametrize("target", ["pdf", "svg", "eps"])
def test_images_in_a_document_are_filtered(choice: str, target: str) -> None:
    document = _convert(tagged_photo(), "pdf", metadata="all").data

    result = _convert(document, target, metadata=choice)

    if target == "pdf":
        with pikepdf.open(BytesIO(result.data)) as written:
            (embedded,) = written.pages[0].get_images().values()
            data = embedded.read_raw_bytes()
        assert any("GPS" in name for name in exiftool(data)) == (choice == "all")
        assert _difference(opened(data), opened(tagged_photo())) == 0
    assert b"BODY-12345" not in result.data or choice == "all"


def test_metadata_of_documents_is_filtered() -> None:
    file = BytesIO()
    with pikepdf.open(BytesIO(sample("pdf"))) as document:
        with document.open_metadata() as packet:
            packet["dc:title"] = "A title"
            packet["{http://ns.adobe.com/exif/1.0/}GPSLatitude"] = "51,30N"
            packet["pdfaid:part"] = "1"
        document.save(file)

    def result(choice: str) -> tuple[bool, bool, bool]:
        written = _convert(file.getvalue(), "pdf", metadata=choice).data
        with pikepdf.open(BytesIO(written)) as document:
            metadata = document.Root.get("/Metadata")
            text = metadata.read_bytes() if metadata is not None else b""
        return b"GPSLatitude" in text, b"A title" in text, b"pdfaid" in text

    results = [result(choice) for choice in ("all", "safe", "none")]
    assert results == [(True, True, True), (False, True, True), (False, False, False)]


def test_segments_of_a_jpeg() -> None:
    plain = saved(quadrants(), "JPEG", progressive=True, comment=b"private", quality=90)
    trailer = plain + b"trailer with a position"

    safe = filter_segments(trailer, "safe")

    assert b"private" not in safe
    assert safe.endswith(b"\xff\xd9")
    assert b"trailer" not in safe
    assert _difference(opened(safe), opened(plain)) == 0
    assert filter_segments(safe, "safe") == safe
    padded = safe[:2] + b"\xff" * 1_000_000 + safe[2:]  # fill bytes before a marker are allowed
    assert _difference(opened(filter_segments(padded, "none")), opened(plain)) == 0
    assert filter_segments(safe[:500], "none") == safe[:500] + b"\xff\xd9"
    assert filter_segments(trailer, "all") is trailer
