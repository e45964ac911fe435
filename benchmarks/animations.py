"""Size, signal-to-noise ratio and CPU time of GIF animations that are reduced in size, next to sharp and gifsicle.

As animated PNG, they are compared with what Pillow makes of the same frames.
"""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from io import BytesIO
from math import log10
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from benchmarks.libraries import NODE
from benchmarks.report import Report, Row
from engine import pipeline
from engine.registry import Registry, load_registry

_SHARE = 0.6  # The width of a result, relative to that of its source.
_UNTIMED = 100.0  # milliseconds for which browsers show a frame without a duration
_LEAST_ERROR = 1e-3  # The mean squared error of equal images, so that the ratio is finite.
_COLUMNS = (
    "file", "source bytes", "bytes", "bytes / source", "bytes / gifsicle -O3", "bytes / sharp", "dB", "dB of sharp",
    "CPU ms", "CPU ms of sharp",
)  # fmt: skip
_PNG_COLUMNS = ("file", "bytes", "bytes / Pillow", "CPU ms", "CPU ms of Pillow's encoder")
_SHARP = """
import sharp from "sharp";
const [source, target, width] = process.argv.slice(2);
sharp.concurrency(1);
const before = process.cpuUsage();
await sharp(source, { animated: true }).resize(Number(width)).toFile(target);
const { user, system } = process.cpuUsage(before);
console.log((user + system) / 1000);
"""

Animation = list[tuple[float, NDArray[Any]]]
"""The time in milliseconds at which each frame ends, and the frame in RGBA."""
Peer = Callable[[Path, int], tuple[bytes, float]]
"""Returns a GIF with a width by another program, and its CPU time in milliseconds."""


def measure(cache: Path, files: Sequence[Path]) -> list[Report]:
    """Returns a row for each GIF, and the medians, for GIF and for PNG. Installs sharp into a folder below `cache`.

    gifsicle compresses the results again, where it is installed. Raises OSError, SubprocessError and ConversionError.
    """
    registry = load_registry()
    folder = NODE.install(cache)
    rows = [_row(registry, file, lambda source, width: _by_sharp(folder, source, width)) for file in files]
    pngs = [_png_row(registry, file) for file in files]
    title = f"at {_SHARE:.0%} of their width"
    return [
        Report(f"GIF animations {title}", _COLUMNS, (*rows, _medians(rows))),
        Report(f"The same as animated PNG {title}", _PNG_COLUMNS, (*pngs, _medians(pngs))),
    ]


def _medians(rows: Sequence[Row]) -> Row:
    return ("median", *(median(float(row[index]) for row in rows) for index in range(1, len(rows[0]))))


def _row(registry: Registry, file: Path, peer: Peer) -> Row:
    source, width = file.read_bytes(), _width(file)
    exact = _frames(_convert(registry, source, "png", width)[0])
    (own, cpu), (other, other_cpu) = _convert(registry, source, "gif", width), peer(file, width)
    ratios = [len(own) / size for size in (len(source), _by_gifsicle(own), len(other))]
    decibels = [_decibels(exact, _frames(data)) for data in (own, other)]
    return file.name, len(source), len(own), *ratios, *decibels, cpu, other_cpu


def _png_row(registry: Registry, file: Path) -> Row:
    own, cpu = _convert(registry, file.read_bytes(), "png", _width(file))
    with Image.open(BytesIO(own)) as image:
        first, *others = [frame.copy() for frame in ImageSequence.Iterator(image)]
    before = process_time()
    first.save(buffer := BytesIO(), "PNG", save_all=True, append_images=others)
    return file.name, len(own), len(own) / len(buffer.getvalue()), cpu, 1000 * (process_time() - before)


def _width(file: Path) -> int:
    """The width of a result."""
    with Image.open(file) as image:
        return max(1, int(image.width * _SHARE + 0.5))


def _convert(registry: Registry, data: bytes, target: str, width: int) -> tuple[bytes, float]:
    options = {"width": width}
    plan = registry.plan([registry.formats["gif"]], target, options=options)
    before = process_time()
    result = pipeline.run(plan, [data], options).data
    return result, 1000 * (process_time() - before)


def _by_sharp(folder: Path, source: Path, width: int) -> tuple[bytes, float]:
    program, target = folder / "animations.mjs", folder / "animation.gif"
    program.write_text(_SHARP)
    command: list[str | Path] = ["node", program, source.resolve(), target, str(width)]
    printed = subprocess.run(command, check=True, cwd=folder, stdout=subprocess.PIPE, text=True).stdout
    return target.read_bytes(), float(printed)


def _by_gifsicle(data: bytes) -> float:
    """The bytes of a GIF after the strongest compression without loss. NaN without the program."""
    if shutil.which("gifsicle") is None:
        return float("nan")
    with TemporaryDirectory() as folder:
        file = Path(folder, "animation.gif")
        file.write_bytes(data)
        return len(subprocess.run(["gifsicle", "-w", "-O3", file], check=True, stdout=subprocess.PIPE).stdout)


def _frames(data: bytes) -> Animation:
    found: Animation = []
    end = 0.0
    with Image.open(BytesIO(data)) as image:
        for frame in ImageSequence.Iterator(image):
            shown = np.asarray(frame.convert("RGBA"), int)  # the duration is that of the frame once it is decoded
            end += frame.info.get("duration") or _UNTIMED
            found.append((end, shown))
    return found


def _decibels(expected: Animation, shown: Animation) -> float:
    """The peak signal-to-noise ratio of pixels that are opaque in both, at the middle of each frame."""
    errors = []
    begin = 0.0
    for end, frame in expected:
        middle = (begin + end) / 2 * shown[-1][0] / expected[-1][0]
        other = next(pixels for until, pixels in shown if until > middle)
        opaque = (frame[..., 3] > 127) & (other[..., 3] > 127)
        errors.append((frame - other)[opaque][:, :3] ** 2)
        begin = end
    return 10 * log10(255**2 / max(float(np.concatenate(errors).mean()), _LEAST_ERROR))
