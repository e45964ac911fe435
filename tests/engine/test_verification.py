"""Verification rejects results that are truncated, unreadable, or different from the encoder's input."""

import os
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from engine import FileFormat, Signature, StepFailed, conversion, pipeline
from engine.executor import worker
from engine.plugin_loader import Plugin
from engine.registry import Registry, load_registry
from engine.verification import verify
from tests.support.samples.generated import sample, saved

_REGISTRY = load_registry()
_PNG = _REGISTRY.formats["png"]
_TARGETS = [fmt.name for fmt in _REGISTRY.targets(_PNG)]


def _gif(frames: int, size: tuple[int, int] = (8, 8)) -> bytes:
    images = [Image.new("L", size, 50 * number) for number in range(frames)]
    return saved(images[0], "GIF", save_all=True, append_images=images[1:], duration=50)


def _refused(target: str, source: bytes, data: bytes) -> None:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(source)], target)
    result = pipeline.run(plan, [source])
    with pytest.raises(StepFailed) as raised:
        verify(_REGISTRY, plan, replace(result.file, data=data))
    assert (raised.value.code, raised.value.reason) == ("processing_failed", "engine_error")


@pytest.mark.parametrize("target", _TARGETS)
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

    _refused("pdf", sample("png"), pages)


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
