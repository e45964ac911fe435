"""Jobs with several results: the input is decoded once, and each result is that of a job of its own."""

import io
import os
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest
from PIL import Image

from engine import RASTER, FidelityWarning, FileFormat, Frame, Raster, Signature, conversion, transform
from engine.errors import ConversionError
from engine.executor import TaskOutput, TaskResult, worker
from engine.executor.several import plan_outputs
from engine.options import OptionValues
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from tests.support.samples.generated import sample

_REGISTRY = load_registry()
_SCAN = FileFormat("scan", media_type="x/scan", extensions=("scan",), sniff=Signature((0, b"SCAN")))
_FILM = FileFormat("film", media_type="x/film", extensions=("film",), sniff=Signature((0, b"FILM")))


def _scanner(decoded: list[str]) -> Registry:
    """Formats of images of two pixels, whose frames are added to the list when they are decoded."""

    @conversion(_SCAN, RASTER, reduces=True)
    def decode(data: bytes, *, width: int = 0, clean: bool = False) -> Raster:
        def frames() -> object:
            decoded.append(f"width {width}, clean {clean}")
            FidelityWarning.issue("damaged", "The scan is damaged.")
            yield Frame(Image.new("RGB", (2, 1)))

        return Raster(frames(), sizes=[(2, 1)], drawn_sizes=[(width or 2, 1)])  # type: ignore[arg-type]

    @transform(RASTER)
    def shrink(raster: Raster, *, width: int = 0) -> Raster:
        return raster.map(lambda frame: frame)

    @conversion(RASTER, _FILM)
    def encode(raster: Raster, *, level: int = 1) -> bytes:
        return f"FILM {raster.first_frame().size} {level}".encode()

    return Registry([Plugin("scanner", "Scans", (decode, encode), transforms=(shrink,))])


def _run(
    registry: Registry, source: str, data: bytes, outputs: Sequence[TaskOutput], folder: Path
) -> tuple[TaskResult, bytes]:
    (folder / "in").write_bytes(data)
    target = os.open(folder / "out", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    files = [os.open(folder / "in", os.O_RDONLY), target]
    planned = plan_outputs(registry, [source], outputs)
    result = worker.convert_outputs(registry, planned, files, lambda _memory: None, "photo")
    return result, (folder / "out").read_bytes()


@pytest.mark.parametrize(
    ("options", "decoded"),
    [
        ([{}, {"level": 2}, {"level": 3}], ["width 0, clean False"]),
        ([{"width": 1}, {"width": 1, "level": 2}], ["width 1, clean False"]),  # as small as all need it
        ([{"width": 1}, {}, {"width": 2}], ["width 0, clean False"]),  # as large as one of them needs it
        ([{"clean": True}, {}, {"width": 1}], ["width 0, clean True", "width 0, clean False"]),
    ],
)
def test_the_same_options_decode_an_input_once(options: list[OptionValues], decoded: list[str], tmp_path: Path) -> None:
    found: list[str] = []
    outputs = [TaskOutput(("film",), one, "") for one in options]
    result, data = _run(_scanner(found), "scan", b"SCAN", outputs, tmp_path)
    assert found == decoded
    assert result.outcome.outputs is not None
    assert [[told.code for told in one.warnings] for one in result.outcome.outputs] == [["damaged"]] * len(options)
    with ZipFile(io.BytesIO(data)) as archive:
        written = [archive.read(name).decode() for name in archive.namelist()]
    assert written == [f"FILM (2, 1) {one.get('level', 1)}" for one in options]
    for name, part in zip(written, result.outcome.outputs, strict=True):
        assert data[part.offset :][: part.processed_size] == name.encode()


@pytest.mark.parametrize(
    ("source", "outputs"),
    [
        ("png", [("png", {}), ("tiff", {"bit_depth": 16}), ("webp", {"width": 40}), ("jpeg", {"rotate": 90})]),
        ("gif", [("gif", {}), ("webp", {"width": 40}), ("png", {"pages": "1"}), ("gif", {"frames": "every:2"})]),
        ("jpeg", [("jpeg", {}), ("jpeg", {"quality": 40}), ("png", {"trim": 10}), ("avif", {"trim": 10})]),
        ("tiff", [("png", {"pages": "all"}), ("pdf", {}), ("gif", {"width": 30})]),
        ("pdf", [("png", {"dpi": 30}), ("png", {"dpi": 60}), ("txt", {}), ("pdf", {})]),
        ("svg", [("png", {"width": 30}), ("svg", {}), ("webp", {"width": 60})]),
        ("exr", [("png", {"bit_depth": 16}), ("jpeg", {}), ("exr", {})]),
    ],
)
def test_results_are_those_of_single_jobs(source: str, outputs: list[tuple[str, OptionValues]], tmp_path: Path) -> None:
    data = _input(source)
    result, files = _run(_REGISTRY, source, data, [TaskOutput((name,), given, "") for name, given in outputs], tmp_path)
    for part, (name, given) in zip(result.outcome.outputs or (), outputs, strict=True):
        alone, file = _run(_REGISTRY, source, data, [TaskOutput((name,), given)], tmp_path)
        assert _without_dates(files[part.offset :][: part.processed_size]) == _without_dates(file)
        assert part.warnings == alone.outcome.warnings
        assert (part.width, part.height, part.pages) == (alone.outcome.width, alone.outcome.height, alone.outcome.pages)
        assert (part.container, part.file_count) == (alone.outcome.container, alone.outcome.file_count)


def _input(source: str) -> bytes:
    """An image with 16 bits per sample, three frames or two pages where the format has them."""
    file = io.BytesIO()
    if source == "png":
        Image.linear_gradient("L").convert("I;16").save(file, "PNG")
    elif source in ("gif", "tiff"):
        first, *others = (Image.linear_gradient("L").rotate(turn).convert("P") for turn in (0, 90, 180))
        first.save(file, source.upper(), save_all=True, append_images=others)
    return file.getvalue() or sample(source)


def _without_dates(data: bytes) -> bytes:
    """A PDF or ZIP without its dates and ids; other files as they are."""
    return data[:5] + bytes(len(data) // 1000) if data.startswith((b"%PDF", b"PK")) else data


def test_names_in_the_archive_are_different(tmp_path: Path) -> None:
    named = [("", {}), ("a", {}), ("a", {}), ("A", {}), ("", {"filename": "{name}-{width}"}), ("../b", {})]
    named += [("-rf", {}), ("CON .tar", {}), ("%2e%2E%5c%00", {}), (" . ", {})]
    outputs = [TaskOutput(("png",), given, name) for name, given in named]
    result, _ = _run(_REGISTRY, "png", sample("png"), outputs, tmp_path)
    names = [one.filename for one in result.outcome.outputs or ()]
    assert names[:6] == ["photo-01.png", "a.png", "a (2).png", "A (3).png", "photo-168.png", "_b.png"]
    assert names[6:] == ["_-rf.png", "_CON .tar.png", "_2e_2E_5c_00.png", "page.png"]


@pytest.mark.parametrize(
    ("source", "targets", "chosen"),
    [
        ("png", ("bmp", "png"), "png"),
        ("gif", ("jpeg", "bmp", "gif"), "gif"),  # the only one that keeps the animation
        ("png", ("jpeg", "tiff"), "tiff"),  # keeps 16 bits
        ("png", ("webp", "bmp"), "bmp"),  # the other one has fewer pixels per side
    ],
)
def test_the_smallest_file_that_keeps_most(source: str, targets: tuple[str, ...], chosen: str, tmp_path: Path) -> None:
    data = _input(source) if targets != ("webp", "bmp") else _large()
    if targets == ("bmp", "png"):
        data = sample("png")
    result, _ = _run(_REGISTRY, source, data, [TaskOutput(targets, {})], tmp_path)
    assert result.outcome.output_format == chosen
    assert result.outcome.outputs is None


def _large() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (17_000, 1)).save(file, "PNG")
    return file.getvalue()


def test_the_failure_of_one_output_is_told_with_its_index(tmp_path: Path) -> None:
    outputs = [TaskOutput(("png",), {}, ""), TaskOutput(("png",), {"crop": "900,900,10,10"}, "")]
    with pytest.raises(ConversionError) as caught:
        _run(_REGISTRY, "png", sample("png"), outputs, tmp_path)
    assert caught.value.param == "outputs[1].crop"
