"""Selected pages and frames: in one file where the target holds several, otherwise a file for each of them."""

import os
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_STORED, ZipFile

import numpy as np
import pillow_heif
import pytest
import tifffile
from PIL import Image, ImageSequence

from engine import InvalidOption
from engine.executor import TaskResult, worker
from engine.media import RASTER
from engine.mupdf import pymupdf
from engine.options import OptionValue
from engine.pipeline import PipelineResult
from engine.registry import load_registry
from tests.support.results.conversions import codes, convert
from tests.support.samples.generated import saved
from tests.support.samples.hostile_documents import repeated_page

_REGISTRY = load_registry()
_WIDTHS = [20, 30, 40, 50]  # in pixels or points; the pages differ, so that each is recognized
_ANIMATIONS = {"gif": "GIF", "webp": "WEBP", "png": "PNG", "avif": "AVIF"}


def _document() -> bytes:
    document = pymupdf.open()
    for number, width in enumerate(_WIDTHS, 1):
        document.new_page(width=width * 10, height=100).insert_text((10, 50), f"page {number}")
    data: bytes = document.tobytes()
    return data


def _tiff(bits: int = 8) -> bytes:
    file = BytesIO()
    with tifffile.TiffWriter(file) as pages:
        for width in _WIDTHS:
            pages.write(np.full((10, width, 3), width << (bits - 8), f"uint{bits}"), photometric="rgb")
    return file.getvalue()


def _animation(encoder: str) -> bytes:
    frames = [Image.new("RGB", (16, 16), (60 * number, 0, 0)) for number in range(4)]
    durations = [100, 200, 300, 400]
    return saved(frames[0], encoder, save_all=True, append_images=frames[1:], duration=durations, lossless=True)


def _heic() -> bytes:
    pillow_heif.register_heif_opener()
    images = [Image.new("RGB", (64, 64), (60 * number, 0, 0)) for number in range(4)]
    return saved(images[0], "HEIF", save_all=True, append_images=images[1:], quality=-1)


def _run(data: bytes, target: str, pages: str | None) -> PipelineResult:
    return convert(data, target) if pages is None else convert(data, target, pages=pages)


def _convert(data: bytes, target: str, pages: str, folder: Path, **options: OptionValue) -> tuple[TaskResult, Path]:
    source, result = folder / "in", folder / "out"
    source.write_bytes(data)
    options["pages"] = pages
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target, options=options)
    files = [os.open(source, os.O_RDONLY), os.open(result, os.O_WRONLY | os.O_CREAT)]
    return worker.convert(_REGISTRY, plan, options, files, lambda _memory: None, "photo"), result


def _frames(data: bytes) -> list[tuple[int, float]]:
    """Red and duration of each frame."""
    frames = ImageSequence.Iterator(Image.open(BytesIO(data)))
    return [(_red(frame), float(frame.info["duration"])) for frame in frames]


def _red(image: Image.Image) -> int:
    red = image.convert("RGB").getpixel((8, 8))
    assert isinstance(red, tuple)
    return round(red[0] / 60)


@pytest.mark.parametrize(
    ("pages", "widths"), [("3", [40]), ("2-3,1", [30, 40, 20]), ("4,1-3", [50, 20, 30, 40]), ("all", _WIDTHS)]
)
def test_a_document_keeps_the_selected_pages(pages: str, widths: list[int]) -> None:
    result = _run(_document(), "pdf", pages)

    assert [page.rect.width for page in pymupdf.open(stream=result.data)] == [width * 10 for width in widths]
    assert result.outcome.warnings == ()


def test_pages_in_another_order_keep_what_refers_to_them() -> None:
    document = pymupdf.open(stream=_document())
    document.set_toc([[1, f"chapter {number}", number] for number in range(1, 5)])
    document.set_page_labels([{"startpage": 0, "prefix": "P-", "style": "D", "firstpagenum": 7}])
    document[0].insert_link({"kind": pymupdf.LINK_GOTO, "page": 2, "from": pymupdf.Rect(0, 0, 9, 9)})
    document[2].add_text_annot((5, 5), "a note")
    data = document.tobytes(encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="secret", owner_pw="owner")

    result = convert(data, "pdf", pages="4,3,1", password="secret")

    kept = pymupdf.open(stream=result.data)
    assert kept.needs_pass
    assert kept.authenticate("secret")
    assert [page.get_text().strip() for page in kept] == ["page 4", "page 3", "page 1"]
    assert {(name, page) for _, name, page in kept.get_toc()} >= {("chapter 4", 1), ("chapter 3", 2), ("chapter 1", 3)}
    assert [page.get_label() for page in kept] == ["P-10", "P-9", "P-7"]
    assert [link["page"] for link in kept[2].get_links()] == [1]
    assert [annotation.info["content"] for annotation in kept[1].annots()] == ["a note"]


@pytest.mark.parametrize("bits", [8, 16])
def test_a_page_of_a_tiff(bits: int) -> None:
    result = _run(_tiff(bits), "png", "3")

    assert Image.open(BytesIO(result.data)).size == (40, 10)
    assert codes(result) == set()
    for target, widths in (("2,4", [30, 50]), ("4,1-2", [50, 20, 30])):
        pages = tifffile.TiffFile(BytesIO(_run(_tiff(bits), "tiff", target).data)).pages
        assert [page.shape for page in pages] == [(10, width, 3) for width in widths]
    document = pymupdf.open(stream=_run(_tiff(bits), "pdf", "4,1").data)
    assert [page.get_images()[0][2] for page in document] == [50, 20]


def test_only_the_selected_page_of_a_tiff_is_decoded() -> None:
    data = _tiff()
    for number in (0, 1, 3):  # damage the pixels of the others
        page = tifffile.TiffFile(BytesIO(data)).pages[number]
        assert isinstance(page, tifffile.TiffPage)
        tag = page.tags["Compression"]
        data = data[: tag.valueoffset] + (7).to_bytes(2, "little") + data[tag.valueoffset + 2 :]

    assert Image.open(BytesIO(_run(data, "png", "3").data)).size == (40, 10)


def test_only_the_selected_page_of_a_document_is_rendered() -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats["pdf"]], "png")
    document = plan.conversions[0](_document(), {"pages": "3"})

    assert (document.page_count, document[0].get_text().strip()) == (1, "page 3")


@pytest.mark.parametrize("source", _ANIMATIONS)
def test_frames_keep_their_timing(source: str) -> None:
    data = _animation(_ANIMATIONS[source])

    assert _frames(_run(data, "webp" if source == "avif" else source, "4,2").data) == [(3, 400), (1, 200)]
    assert _red(Image.open(BytesIO(_run(data, "bmp", "3").data))) == 2


def test_images_of_a_heic() -> None:
    with Image.open(BytesIO(_run(_heic(), "tiff", "2-3").data)) as image:
        assert [_red(page) for page in ImageSequence.Iterator(image)] == [1, 2]


@pytest.mark.parametrize(
    ("data", "target", "code"),
    [
        (_document(), "png", "pages_dropped"),
        (_tiff(), "jpeg", "pages_dropped"),
        (_animation("GIF"), "bmp", "frames_dropped"),
    ],
)
def test_the_first_page_is_the_default_where_the_target_holds_one(data: bytes, target: str, code: str) -> None:
    result = _run(data, target, None)

    assert codes(result) == {code}
    assert result.outcome.file_count == 1
    assert codes(_run(data, target, "1")) == set()


@pytest.mark.parametrize(
    ("data", "target"),
    [(_document(), "png"), (_document(), "pdf"), (_document(), "svg"), (_tiff(), "pdf"), (_tiff(16), "tiff")]
    + [(_animation(encoder), "jpeg") for encoder in _ANIMATIONS.values()]
    + [(_heic(), "png")],
)
@pytest.mark.parametrize("pages", ["5", "2-9"])
def test_a_page_that_the_file_does_not_have(data: bytes, target: str, pages: str) -> None:
    with pytest.raises(InvalidOption) as raised:
        _run(data, target, pages)

    error = raised.value
    assert (error.param, error.reason, error.details["page_count"]) == ("pages", "out_of_range", 4)


@pytest.mark.parametrize("target", ["jpeg", "png", "webp", "avif", "heic", "bmp", "psd", "gif", "eps"])
def test_several_pages_of_a_tiff_are_one_zip(target: str, tmp_path: Path) -> None:
    result, path = _convert(_tiff(), target, "2-4", tmp_path)

    outcome = result.outcome
    assert (outcome.container, outcome.file_count, outcome.processed_size) == ("zip", 3, path.stat().st_size)
    extension = _REGISTRY.formats[target].extensions[0]
    with ZipFile(path) as archive:
        assert archive.namelist() == [f"photo-0{number}.{extension}" for number in (1, 2, 3)]
        assert {entry.compress_type for entry in archive.infolist()} == {ZIP_STORED}
        for name, width in zip(archive.namelist(), _WIDTHS[1:], strict=True):
            data = archive.read(name)
            assert _REGISTRY.identify_content(data).name == target
            if _REGISTRY.path(_REGISTRY.formats[target], RASTER):
                with Image.open(BytesIO(_run(data, "png", None).data)) as image:
                    assert image.width == pytest.approx(width * 150 / 72 if target == "eps" else width, abs=1)


@pytest.mark.parametrize(("target", "dpi"), [("svg", 96), ("eps", 150), ("png", 150)])
def test_several_pages_of_a_document_are_one_zip(target: str, dpi: int, tmp_path: Path) -> None:
    result, path = _convert(_document(), target, "all", tmp_path)

    assert (result.outcome.container, result.outcome.file_count, result.outcome.warnings) == ("zip", 4, ())
    with ZipFile(path) as archive:
        files = [archive.read(name) for name in archive.namelist()]
    for data, width in zip(files, _WIDTHS, strict=True):
        with Image.open(BytesIO(_run(data, "png", None).data)) as image:
            assert image.width == pytest.approx(width * 10 * dpi / 72, abs=2)


@pytest.mark.parametrize(
    ("data", "target"),
    [(_animation("GIF"), "webp"), (_animation("GIF"), "tiff"), (_tiff(), "pdf"), (_document(), "tiff")],
)
def test_a_format_that_holds_several_pages_needs_no_zip(data: bytes, target: str, tmp_path: Path) -> None:
    result, _ = _convert(data, target, "1-2", tmp_path)

    assert (result.outcome.container, result.outcome.file_count) == (None, 1)


def test_each_step_of_several_files_is_timed_once(tmp_path: Path) -> None:
    result, _ = _convert(_tiff(), "png", "all", tmp_path)

    steps = [timing.step for timing in result.trace]
    assert (steps[0], steps[-1], len(steps)) == ("tiff -> raster", "raster -> png", len(set(steps)))


def test_a_file_name_is_safe_in_a_zip(tmp_path: Path) -> None:
    source, result = tmp_path / "in", tmp_path / "out"
    source.write_bytes(_tiff())
    plan = _REGISTRY.plan([_REGISTRY.formats["tiff"]], "png")
    for name, expected in [("../a\\b:c", "_a_b_c"), ("..", "page"), ("été\ud800", "été")]:
        files = [os.open(source, os.O_RDONLY), os.open(result, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)]
        worker.convert(_REGISTRY, plan, {"pages": "1-2"}, files, lambda _memory: None, name)
        with ZipFile(result) as archive:
            assert archive.namelist() == [f"{expected}-01.png", f"{expected}-02.png"]


def test_a_page_can_be_in_a_pdf_several_times() -> None:
    with Image.open(BytesIO(convert(repeated_page(5), "tiff").data)) as pages:
        assert getattr(pages, "n_frames", 1) == 5
