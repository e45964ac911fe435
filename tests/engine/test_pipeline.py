"""Whole results: files for single pages, a size limit, keeping the original, inspection, and verification."""

import os
import weakref
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
import pytest_asyncio
import tifffile
from PIL import Image, PngImagePlugin

from engine import RASTER, ConversionError, FileFormat, Frame, Raster, Signature, StepFailed, conversion, pipeline
from engine.conversions import EncodedFile
from engine.executor import LocalExecutor, Task, worker
from engine.mupdf import pymupdf
from engine.option_types import Pages, Quality
from engine.options import OptionValue
from engine.pipeline import PipelineResult
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from engine.step_errors import step_errors
from engine.verification import verify
from plugins.formats import png as png_format
from tests.support.executors.isolated import FileJob, run_files
from tests.support.results.conversions import convert
from tests.support.samples.generated import sample, saved
from tests.support.samples.rasters import photo
from tests.support.samples.raw_samples import CAMERAS, raw_sample

_REGISTRY = load_registry()
_SCAN = FileFormat("scan", media_type="x/scan", extensions=("scan",), sniff=Signature((0, b"SCAN")))
_LOSSY = sorted(fmt.name for fmt in _REGISTRY.formats.values() if fmt.lossy)
_PIXELS = np.random.default_rng(1).integers(0, 255, (96, 96, 3), np.uint8)
_PNG = _REGISTRY.formats["png"]
_TARGETS = [fmt.name for fmt in _REGISTRY.targets(_PNG)]


def _encoded(encoder: str, **parameters: object) -> bytes:
    return saved(Image.fromarray(_PIXELS), encoder, **parameters)


def _codes(result: PipelineResult) -> list[str]:
    return [warning.code for warning in result.outcome.warnings]


class _Scanner:
    """A format of 12 pages, and the number of its pages that were decoded and of those that are in memory."""

    def __init__(self) -> None:
        self.alive = 0
        self.most = 0
        self.decoded = 0

        @conversion(_SCAN, RASTER)
        def decode(data: bytes, *, pages: Pages | None = None) -> Raster:
            return Raster(self._pages(), count=12, sizes=[(64, 64)] * 12)

        self.registry = Registry([*_REGISTRY.plugins, Plugin("scan", "", (decode,))])

    def _pages(self) -> Iterator[Frame]:
        for number in range(12):
            yield self._page(number)

    def _page(self, number: int) -> Frame:
        image = Image.new("RGB", (64, 64), (20 * number, 0, 0))
        self.alive += 1
        self.decoded += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(image, self._free)
        return Frame(image)

    def _free(self) -> None:
        self.alive -= 1


@pytest.mark.parametrize("options", [{}, {"max_bytes": 1000}])
@pytest.mark.parametrize("target", ["jpeg", "webp", "png"])
def test_one_decoded_page_is_in_memory(target: str, options: dict[str, OptionValue], tmp_path: Path) -> None:
    scanner = _Scanner()
    (tmp_path / "in").write_bytes(b"SCAN")
    options = {**options, "pages": "all"}
    plan = scanner.registry.plan([_SCAN], target, options=options)
    files = [os.open(tmp_path / "in", os.O_RDONLY), os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)]

    result = worker.convert(scanner.registry, plan, options, files, lambda _memory: None)

    assert scanner.most == 1
    assert (result.outcome.container, result.outcome.file_count) == ("zip", 12)
    with ZipFile(tmp_path / "out") as archive:
        assert archive.namelist()[-1] == f"page-12.{plan.target.extensions[0]}"
        for number, name in enumerate(archive.namelist()):
            red = np.asarray(Image.open(BytesIO(archive.read(name))).convert("RGB"))[..., 0]
            assert abs(red.mean() - 20 * number) < 4


def test_each_file_is_verified() -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats["tiff"]], "png")
    pages = BytesIO()
    with tifffile.TiffWriter(pages) as tiff:
        for width in (10, 20):
            tiff.write(np.zeros((8, width, 3), np.uint8), photometric="rgb")
    files: list[EncodedFile] = []

    pipeline.run(plan, [pages.getvalue()], {"pages": "all"}, on_file=files.append)

    for file in files:
        verify(_REGISTRY, plan, file)
    with pytest.raises(StepFailed):
        verify(_REGISTRY, plan, EncodedFile(files[0].data, files[1].encoder_input, "02"))


@pytest.mark.parametrize("target", _LOSSY)
def test_the_best_quality_that_fits(target: str) -> None:
    source = _encoded("PNG")
    limit = len(convert(source, target, quality=40).data)

    result = convert(source, target, max_bytes=limit)

    assert (len(result.data) <= limit, result.outcome.quality_used is not None, _codes(result)) == (True, True, [])
    assert result.data == convert(source, target, quality=result.outcome.quality_used or 0).data
    assert len(convert(source, target, quality=(result.outcome.quality_used or 0) + 1).data) > limit


def test_a_size_limit_takes_few_encodings_and_one_decoding() -> None:
    target = FileFormat("print", media_type="x/print", extensions=("print",), sniff=Signature((0, b"PRINT")))
    qualities: list[int] = []
    scanner = _Scanner()

    @conversion(RASTER, target)
    def encode(raster: Raster, *, quality: Quality = 75) -> bytes:
        qualities.append(quality)
        return b"PRINT" + bytes(100 * quality) + bytes(len([*raster.frames]))

    registry = Registry([*scanner.registry.plugins, Plugin("print", "", (encode,))])
    options = {"max_bytes": 6700}
    result = pipeline.run(registry.plan([_SCAN], target, options=options), [b"SCAN"], options)

    assert (result.outcome.quality_used, len(result.data)) == (66, 6617)
    assert len(qualities) <= 7
    assert scanner.decoded == 12


@pytest.mark.parametrize("target", _LOSSY)
def test_a_size_limit_does_not_raise_the_quality_above_the_default(target: str) -> None:
    source = _encoded("PNG")

    assert convert(source, target, max_bytes=10_000_000).data == convert(source, target).data


@pytest.mark.parametrize("quality", [1, 30])
def test_a_given_quality_is_the_upper_limit(quality: int) -> None:
    result = convert(_encoded("PNG"), "jpeg", quality=quality, max_bytes=1_000_000)

    assert result.outcome.quality_used == quality
    assert result.data == convert(_encoded("PNG"), "jpeg", quality=quality).data


def test_an_animation_is_decoded_once_for_a_size_limit() -> None:
    frames = [Image.fromarray(np.roll(_PIXELS, shift, 1)) for shift in (0, 8, 16)]
    source = BytesIO()
    frames[0].save(source, "PNG", save_all=True, append_images=frames[1:], duration=[100, 200, 300])

    result = convert(source.getvalue(), "webp", max_bytes=20_000)

    assert len(result.data) <= 20_000
    assert getattr(Image.open(BytesIO(result.data)), "n_frames", 1) == 3
    assert [timing.stage for timing in result.trace].count("encode") == 1


@pytest.mark.parametrize("options", [{}, {"quality": 50}])
def test_a_size_that_no_quality_reaches(options: dict[str, OptionValue]) -> None:
    source = saved(photo((640, 480)), "PNG")
    with pytest.raises(ConversionError) as raised:
        convert(source, "jpeg", max_bytes=1000, **options)

    error = raised.value
    assert (error.code, error.reason, error.retryable) == ("processing_failed", "target_unreachable", False)
    assert error.details == {"max_bytes": 1000, "smallest": len(convert(source, "jpeg", quality=1).data)}
    assert ConversionError.from_json(error.as_json()).reason == "target_unreachable"


def test_a_size_limit_has_no_effect_on_lossless_targets() -> None:
    result = convert(_encoded("PNG"), "bmp", max_bytes=1000)

    assert (_codes(result), result.outcome.quality_used) == (["option_ignored"], None)
    assert "max_bytes" in result.outcome.warnings[0].message


def test_a_size_limit_without_effect_leaves_the_path_that_keeps_pixels() -> None:
    """PNG has a limit only with a palette."""
    source = FileFormat("wrapped", media_type="x/wrapped", extensions=("wrapped",), sniff=Signature((0, b"WRAP")))
    png = sample("png")

    @conversion(source, _REGISTRY.formats["png"])
    def unwrap(data: bytes) -> bytes:
        return data.removeprefix(b"WRAP")

    @conversion(source, RASTER)
    def decode(data: bytes) -> Raster:
        return png_format.decode(unwrap(data))

    registry = Registry([*_REGISTRY.plugins, Plugin("wrapped", "", (unwrap, decode))])
    options = {"max_bytes": 1000}
    result = pipeline.run(registry.plan([source], "png", options=options), [b"WRAP" + png], options)

    assert (result.data, _codes(result)) == (png, ["option_ignored"])


def test_encoders_with_a_quality_have_a_size_limit() -> None:
    with_limit = {plan.target.name for plan in _REGISTRY.catalogue() if "max_bytes" in plan.options}

    assert with_limit == {plan.target.name for plan in _REGISTRY.catalogue() if "quality" in plan.options}
    assert _REGISTRY.options["max_bytes"].schema["minimum"] == 1000


_SMALL = {
    "jpeg": _encoded("JPEG", quality=10),
    "webp": _encoded("WEBP", quality=5),
    "avif": _encoded("AVIF", quality=5),
}


@pytest.mark.parametrize("name", _SMALL)
@pytest.mark.parametrize("options", [{}, {"quality": 90}, {"max_bytes": 1_000_000}])
def test_recompressing_never_makes_a_file_larger(name: str, options: dict[str, OptionValue]) -> None:
    result = convert(_SMALL[name], name, **options)

    assert result.data == _SMALL[name]
    untouched = name == "jpeg" and not options
    assert (_codes(result), result.outcome.quality_used) == ([] if untouched else ["kept_original"], None)


def test_a_smaller_result_replaces_the_original() -> None:
    original = _encoded("JPEG", quality=95)
    result = convert(original, "jpeg", quality=20)

    assert (len(result.data) < len(original), _codes(result)) == (True, [])


def _gps() -> bytes:
    tags = Image.Exif()
    tags.get_ifd(0x8825)[1] = "N"
    return tags.tobytes()


def _text() -> PngImagePlugin.PngInfo:
    info = PngImagePlugin.PngInfo()
    info.add_text("Location", "home")
    return info


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("jpeg", _encoded("JPEG", quality=10, exif=_gps())),
        ("jpeg", _encoded("JPEG", quality=10, comment=b"at home")),
        ("jpeg", _encoded("JPEG", quality=10, xmp=b"<x:xmpmeta/>")),
        ("jpeg", _SMALL["jpeg"] + b"a film with a position"),
        ("jpeg", _SMALL["jpeg"][:2] + b"\xff\xe5\x00\x06HOME" + _SMALL["jpeg"][2:]),
        ("webp", _encoded("WEBP", quality=5, exif=_gps())),
        ("avif", _encoded("AVIF", quality=5, exif=_gps())),
        ("png", _encoded("PNG", compress_level=9, pnginfo=_text())),
        ("jpeg", _SMALL["jpeg"][:18] + b"\1\1" + _SMALL["jpeg"][20:]),
        ("tiff", _encoded("TIFF", tiffinfo={270: "at home"})),
        ("tiff", _encoded("TIFF", save_all=True, append_images=[Image.new("L", (8, 8))])),
    ],
)
def test_an_original_with_metadata_is_not_kept(name: str, data: bytes) -> None:
    raster = pipeline.open_file(_REGISTRY.path(_REGISTRY.formats[name], RASTER), data)

    assert not raster.source.bare or not _REGISTRY.formats[name].is_complete(data)  # type: ignore[misc]
    assert "kept_original" not in _codes(convert(data, name, quality=100))


@pytest.mark.parametrize(("name", "encoder"), [("jpeg", "JPEG"), ("png", "PNG"), ("tiff", "TIFF"), ("gif", "GIF")])
def test_a_file_of_pixels_only_is_bare(name: str, encoder: str) -> None:
    path = _REGISTRY.path(_REGISTRY.formats[name], RASTER)

    assert pipeline.open_file(path, _encoded(encoder, dpi=(300, 300), icc_profile=b"profile")).source.bare


def test_an_original_of_which_pages_are_selected_is_not_kept() -> None:
    frames = [Image.new("L", (8, 8), 50 * number) for number in range(3)]
    data = saved(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=50)

    result = convert(data, "gif", pages="2")

    assert (_codes(result), getattr(Image.open(BytesIO(result.data)), "n_frames", 1)) == ([], 1)


@pytest.mark.parametrize("name", CAMERAS)
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_the_size_of_a_raw_file_is_known_before_it_is_developed(name: str, orientation: int) -> None:
    got = pipeline.open_file(_REGISTRY.path(_REGISTRY.formats[name], RASTER), raw_sample(name, orientation=orientation))

    assert got.sizes == [next(iter(got.frames)).size]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor() -> AsyncIterator[LocalExecutor]:
    made = LocalExecutor(1)
    yield made
    await made.close()


def _document(**encryption: object) -> bytes:
    document = pymupdf.open()
    for _ in range(3):
        document.new_page(width=144, height=72)
    data: bytes = document.tobytes(**encryption)
    return data


_ENCRYPTION = {"encryption": pymupdf.PDF_ENCRYPT_AES_256, "user_pw": "secret", "owner_pw": "owner"}


@pytest.mark.parametrize(
    ("data", "target", "options", "expected"),
    [
        (_encoded("PNG"), "jpeg", {}, (96, 96, 1, 1)),
        (_encoded("PNG"), "jpeg", {"crop": "0,0,40,20", "rotate": 90, "width": 10}, (10, 20, 1, 1)),
        (_encoded("JPEG"), "pdf", {}, (None, None, 1, 1)),
        (_encoded("JPEG"), "png", {"width": 12}, (12, 12, 1, 1)),
        (_document(), "png", {"pages": "2"}, (300, 150, 1, 1)),
        (_document(), "png", {"pages": "2-3", "width": 100}, (100, 50, 2, 2)),
        (_document(), "tiff", {"pages": "2-3", "rotate": 90}, (150, 300, 2, 1)),
        (_document(**_ENCRYPTION), "pdf", {"password": "secret"}, (None, None, 3, 1)),
        (sample("eps"), "eps", {}, (None, None, 1, 1)),
        (sample("svg"), "png", {"width": 77}, (77, 55, 1, 1)),
    ],
)
@pytest.mark.asyncio(loop_scope="module")
async def test_a_dry_run_foresees_the_result(
    data: bytes,
    target: str,
    options: dict[str, OptionValue],
    expected: tuple[int | None, ...],
    executor: LocalExecutor,
    tmp_path: Path,
) -> None:
    (tmp_path / "in").write_bytes(data)
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target, options=options)

    def job(name: str, *, dry_run: bool) -> FileJob:
        return FileJob(Task.of(plan, options, dry_run=dry_run), [tmp_path / "in"], tmp_path / name)

    planned = await run_files(executor, job("none", dry_run=True))
    result = await run_files(executor, job("out", dry_run=False))

    facts = [(one.width, one.height, one.pages, one.file_count) for one in (planned.outcome, result.outcome)]
    assert facts == [expected, expected]
    assert planned.outcome.warnings == result.outcome.warnings
    assert (planned.outcome.processed_size, (tmp_path / "none").stat().st_size, planned.trace) == (0, 0, ())


@pytest.mark.asyncio(loop_scope="module")
async def test_a_file_that_cannot_be_inspected(executor: LocalExecutor, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(_document(**_ENCRYPTION))
    plan = _REGISTRY.plan([_REGISTRY.formats["pdf"]], "png")
    with pytest.raises(ConversionError) as raised:
        await run_files(executor, FileJob(Task.of(plan, dry_run=True), [tmp_path / "in"], tmp_path / "out"))

    assert raised.value.reason == "pdf_encrypted"


@pytest.mark.asyncio(loop_scope="module")
async def test_a_zip_from_the_sandbox(executor: LocalExecutor, tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(_document())
    options: dict[str, OptionValue] = {"pages": "all", "max_bytes": 1000}
    plan = _REGISTRY.plan([_REGISTRY.formats["pdf"]], "webp", options=options)

    result = await run_files(executor, FileJob(Task.of(plan, options, "scan"), [tmp_path / "in"], tmp_path / "out"))

    assert (result.outcome.container, result.outcome.file_count, result.outcome.quality_used) == ("zip", 3, 87)
    with ZipFile(tmp_path / "out") as archive:
        assert archive.namelist() == ["scan-01.webp", "scan-02.webp", "scan-03.webp"]
        assert archive.testzip() is None


def _gif(frames: int, size: tuple[int, int] = (8, 8)) -> bytes:
    images = [Image.new("L", size, 50 * number) for number in range(frames)]
    return saved(images[0], "GIF", save_all=True, append_images=images[1:], duration=50)


def _refused(target: str, source: bytes, data: bytes) -> None:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(source)], target)
    result = pipeline.run(plan, [source])
    with pytest.raises(StepFailed) as raised:
        verify(_REGISTRY, plan, replace(result.file, data=data))
    assert (raised.value.code, raised.value.reason) == ("processing_failed", "engine_error")


@pytest.mark.parametrize("target", [name for name in _TARGETS if not _REGISTRY.formats[name].text_extensions])
def test_half_a_result(target: str) -> None:
    data = pipeline.run(_REGISTRY.plan([_PNG], target), [sample("png")]).data
    if target == "psd":  # only its header is checked
        data = data[:60]

    _refused(target, sample("png"), data[: len(data) // 2])


def test_another_format() -> None:
    _refused("jpeg", sample("png"), sample("gif"))


def test_another_size() -> None:
    smaller = BytesIO()
    Image.new("RGB", (9, 9)).save(smaller, "PNG")

    _refused("png", sample("gif"), smaller.getvalue())


def test_another_number_of_frames() -> None:
    _refused("gif", _gif(3), _gif(4))


def test_another_number_of_pages() -> None:
    pages = pipeline.run(_REGISTRY.plan([_REGISTRY.formats["gif"]], "pdf"), [_gif(3)]).data

    _refused("pdf", sample("bmp"), pages)  # PNG is embedded without a count


def test_a_job_leaves_no_such_result(tmp_path: Path) -> None:
    cut = FileFormat("cut", media_type="image/x-cut", extensions=("cut",), sniff=Signature((0, b"CUT")))

    @conversion(cut, _PNG)
    def write(_data: bytes) -> bytes:
        return sample("png")[:-20]

    registry = Registry([*_REGISTRY.plugins, Plugin("cut", "", (write,))])
    source, result = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"CUT")

    plan = registry.plan([cut], "png")
    files = [os.open(source, os.O_RDONLY), os.open(result, os.O_WRONLY | os.O_CREAT)]
    with pytest.raises(StepFailed):
        worker.convert(registry, plan, {}, files, lambda _memory: None)
    assert result.stat().st_size == 0


def test_frames_that_look_the_same_are_one() -> None:
    plan = _REGISTRY.plan([_REGISTRY.formats["gif"]], "gif")
    result = pipeline.run(plan, [_gif(3)])

    verify(_REGISTRY, plan, replace(result.file, data=_gif(2)))


def test_a_result_without_the_signature_of_its_format() -> None:
    assert _REGISTRY.reader(_REGISTRY.formats["eps"]) is None  # only its signature and its end are checked

    _refused("eps", sample("png"), b"PS-Adobe-3.0\n%%EOF\n")


def test_a_library_that_cannot_be_loaded_is_no_fault_of_the_file() -> None:
    png = _REGISTRY.formats["png"]

    with (
        pytest.raises(StepFailed, match="needs a library that cannot be loaded"),
        step_errors(_REGISTRY.path(png, RASTER)[0]),
    ):
        raise ImportError("libpng.so.99: cannot open shared object file")
