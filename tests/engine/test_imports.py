"""Jobs import no module, because their processes have imported it ahead. Rare files are an exception."""

import json
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile
from PIL import Image
from psd_tools import PSDImage

from engine.executor import preload
from engine.executor.disk_quota import reachable_by_tasks
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.pairs import pairs_with_samples
from tests.support.samples.pdf_documents import document
from tests.support.samples.raw_samples import CAMERAS
from tests.support.samples.shares import number_of_share

_SHARES = {"all": 3, "plan": 6}  # into which the jobs are divided; with --long, all of them run


def _tiff(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> bytes:
    buffer = BytesIO()
    tifffile.imwrite(buffer, array, photometric="rgb")
    return buffer.getvalue()


def _psd(image: Image.Image) -> bytes:
    buffer = BytesIO()
    document = PSDImage.new("RGBA", image.size)
    document.create_pixel_layer(image)
    document.save(buffer)
    return buffer.getvalue()


def _write_files(folder: Path) -> None:
    """A file of each format, and files that need other modules than most files of their format."""
    image = quadrants()
    samples = np.arange(40 * 50 * 3, dtype=np.uint16).reshape(40, 50, 3)
    exif = Image.Exif()
    exif[0x0112] = 6
    svg = sample("svg").decode()
    formats = {plan.source.name for plan in pairs_with_samples()} - {
        *[*CAMERAS][1:]
    }  # one function decodes all RAW formats
    files = {fmt: sample(fmt) for fmt in formats} | {
        "jpeg-cmyk": saved(image.convert("CMYK"), "JPEG"),
        "jpeg-exif": saved(image, "JPEG", exif=exif),
        "jpeg-pictures": saved(image, "MPO", save_all=True, append_images=[image]),
        "png-gray": saved(Image.fromarray(samples[..., 0]), "PNG"),
        "png-deep": bytes(imagecodecs.png_encode(samples)),
        "png-palette": saved(image.quantize(), "PNG", transparency=1),
        "png-frames": saved(image, "PNG", save_all=True, append_images=[image.rotate(180)]),
        "gif-frames": saved(image, "GIF", save_all=True, append_images=[image.rotate(180)]),
        "webp-alpha": saved(image.convert("RGBA"), "WEBP", exif=exif),
        "tiff-cmyk": saved(image.convert("CMYK"), "TIFF", compression="tiff_lzw"),
        "tiff-deep": _tiff(samples),
        "tiff-float": _tiff(samples.astype(np.float32)),
        "psd-alpha": _psd(image.convert("RGBA")),
        "pdf": document("pages", 3),
        "svg-encoding": f'<?xml version="1.0" encoding="koi8-r"?>{svg[svg.index("<svg") :]}'.encode(),
    }
    for name, data in files.items():
        (folder / f"{name}.file").write_bytes(data)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("files")
    _write_files(made)
    return made


@pytest.mark.parametrize("kind", ["all", "plan"])
def test_jobs_import_no_module(folder: Path, pytestconfig: pytest.Config, kind: str) -> None:
    """Each group of jobs that need the same modules needs processes of its own, so every run has a share of them."""
    share, every = number_of_share(pytestconfig, _SHARES[kind])
    program = [sys.executable, "-m", "tests.support.executors.imports", kind, str(folder), str(every), str(share)]

    done = subprocess.run(program, capture_output=True, text=True, check=True)

    found = json.loads(done.stdout)
    assert len(found) > 150 / every
    importing = {job.partition(".")[0] for job, modules in found.items() if modules}
    rare = {"all": {"jpeg-cmyk", "tiff-cmyk"}, "plan": {"jpeg-cmyk", "png-gray", "tiff-cmyk"}}[kind]
    expected = rare if reachable_by_tasks(Path(preload.__file__)) else set()
    assert importing == expected if every == 1 else importing <= expected
