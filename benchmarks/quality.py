"""Visual quality and size of photos in the lossy formats, at their default quality and at others, next to encoders."""

import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import pairwise
from math import exp, log
from os import sched_getaffinity
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from types import MappingProxyType

from PIL import Image

from benchmarks import animations, encoders, screens, workloads
from benchmarks.encoders import Encoder
from benchmarks.libraries import Environment
from benchmarks.report import COLUMNS, Report, Row, required
from engine import pipeline
from engine.registry import Registry, load_registry

QUALITIES: Mapping[str, Sequence[int]] = MappingProxyType(
    {"jpeg": (70, 75, 85, 90), "webp": (75, 80, 85, 90), "avif": (50, 60, 65, 80), "heic": (40, 45, 60, 70)}
)
"""The qualities to measure besides the default, by format."""

_COLUMNS = ("format", "quality", "default", "score", "lowest", "highest", "bytes / JPEG", "CPU ms")
_PEER_COLUMNS = ("encoder", "format", "score", "CPU ms", "bytes: convertd / encoder at its score", "lowest", "highest")
_METRIC = Environment("ssimulacra2", ("ssimulacra2==0.3.0",))
_SCORE = 78  # The default qualities have to reach it.
_SIZE = (768, 576)  # pixels that are compared of each photo
_PROGRAM = """
import sys
from ssimulacra2 import compute_ssimulacra2
for path in sys.argv[2:]:
    print(compute_ssimulacra2(sys.argv[1], path))
"""

Setting = tuple[str, int]
"""A format and a quality."""
Metric = Callable[[Path, Sequence[Path]], list[float]]
"""Returns the scores of images, compared with the first argument."""


@dataclass(frozen=True)
class Encoding:
    """A photo in one format and quality: size in bytes, CPU time in seconds, and score."""

    size: int
    cpu: float
    score: float


def measure(cache: Path, files: Sequence[Path]) -> Iterator[Report]:
    """Yields the results for files: screens, which are PNG, animations, which are GIF, and photos.

    Without files, the generated image is the photo.

    Installs the metric and other encoders into folders below `cache`. Raises OSError, CalledProcessError and
    ConversionError.
    """
    registry = load_registry()
    metric = partial(_ssimulacra2, _METRIC.install(cache) / "bin" / "python")
    names = {file: registry.identify(file).name for file in files}
    drawn, animated = ([file for file in files if names[file] == name] for name in ("png", "gif"))
    photos = [_photo(registry, file) for file in files if file not in (*drawn, *animated)]
    if not files:
        yield compare(registry, [workloads.photo(_SIZE)], metric)[0]  # the requirements hold for photos only
    if photos:
        yield from compare(registry, photos, metric, [*encoders.of_photos(cache)])
    if drawn:
        yield screens.compare(registry, drawn, [*encoders.of_screens(cache)])
    if animated:
        yield from animations.measure(cache, animated)


def compare(
    registry: Registry, photos: Sequence[Image.Image], metric: Metric, peers: Sequence[Encoder] = ()
) -> list[Report]:
    """Returns a row per format and quality, the requirements of the default qualities, and a row per peer."""
    bmp = registry.formats["bmp"]
    plans = {name: registry.plan([bmp], name) for name in QUALITIES}
    defaults = {name: int(plan.options["quality"].default or 0) for name, plan in plans.items()}
    settings = [(name, quality) for name in QUALITIES for quality in sorted({*QUALITIES[name], defaults[name]})]
    encodings, others = _encode_all(registry, photos, settings, metric, peers)
    jpeg = encodings["jpeg", defaults["jpeg"]]
    rows = tuple(_row(one, defaults[one[0]], found, jpeg) for one, found in encodings.items())
    requirements = tuple(_requirement(name, encodings[name, quality]) for name, quality in defaults.items())
    reports = [
        Report(f"Pictures of {_SIZE[0]}x{_SIZE[1]} pixels, medians over {len(photos)}", _COLUMNS, rows),
        Report("Requirements", COLUMNS, requirements),
    ]
    if peers:
        rows = tuple(_next_to(encodings, peer, found) for peer, found in zip(peers, others, strict=True))
        reports.append(Report("Next to encoders at their default quality", _PEER_COLUMNS, rows))
    return reports


def _next_to(encodings: Mapping[Setting, Sequence[Encoding]], peer: Encoder, found: Sequence[Encoding]) -> Row:
    """Medians over the photos; sizes are compared at the score that the encoder reaches for a photo."""
    own = zip(*(of_setting for (name, _), of_setting in encodings.items() if name == peer.format), strict=True)
    sizes = [(_size_at(curve, one.score), one.size) for curve, one in zip(own, found, strict=True)]
    ratios = [size / other for size, other in sizes if size is not None]
    compared = (median(ratios), min(ratios), max(ratios)) if ratios else ("none in range", "", "")
    return peer.name, peer.format, median(one.score for one in found), _cpu_ms(found), *compared


def _cpu_ms(encodings: Sequence[Encoding]) -> float:
    return 1000 * median(one.cpu for one in encodings)


def _size_at(curve: Sequence[Encoding], score: float) -> float | None:
    """The size at a score, interpolated between encodings of one photo. None outside of their scores."""
    for low, high in pairwise(sorted(curve, key=lambda one: one.score)):
        if low.score <= score <= high.score and low.score < high.score:
            share = (score - low.score) / (high.score - low.score)
            return exp(log(low.size) * (1 - share) + log(high.size) * share)
    return None


def _photo(registry: Registry, file: Path) -> Image.Image:
    """The center of a photo in sRGB. Raises ValueError for a photo that is smaller than the part to compare."""
    plan = registry.plan([registry.identify(file)], "png")
    decoded = pipeline.run(plan, [file.read_bytes()], {"color_space": "srgb"}).data
    image = Image.open(BytesIO(decoded)).convert("RGB")
    left, top = (image.width - _SIZE[0]) // 2, (image.height - _SIZE[1]) // 2
    if min(left, top) < 0:
        raise ValueError(f"{file} has fewer than {_SIZE[0]}x{_SIZE[1]} pixels")
    return image.crop((left, top, left + _SIZE[0], top + _SIZE[1]))


def _encode_all(
    registry: Registry,
    photos: Sequence[Image.Image],
    settings: Sequence[Setting],
    metric: Metric,
    peers: Sequence[Encoder],
) -> tuple[dict[Setting, list[Encoding]], list[list[Encoding]]]:
    """The own encodings of each photo by setting, and those of each peer. Scores are computed in parallel."""
    with TemporaryDirectory() as folder, ThreadPoolExecutor(len(sched_getaffinity(0))) as threads:
        started = []
        for number, photo in enumerate(photos):
            original = Path(folder, f"{number}.bmp")
            photo.save(original)
            encoded = [_encode(registry, original, *setting) for setting in settings]
            encoded += [_encode_by(peer, registry, original) for peer in peers]
            started.append((encoded, threads.submit(metric, original, [image for _, _, image in encoded])))
        results = [
            [Encoding(size, cpu, score) for (size, cpu, _), score in zip(encoded, scores.result(), strict=True)]
            for encoded, scores in started
        ]
    columns = [list(column) for column in zip(*results, strict=True)]
    return dict(zip(settings, columns, strict=False)), columns[len(settings) :]


def _encode(registry: Registry, original: Path, name: str, quality: int) -> tuple[int, float, Path]:
    """The size in bytes, the CPU time in seconds, and the decoded result beside the original."""
    bmp = registry.formats["bmp"]
    plan = registry.plan([bmp], name)
    back = registry.plan([registry.formats[name]], "bmp")
    content = original.read_bytes()
    before = process_time()
    encoded = pipeline.run(plan, [content], {"quality": quality}).data
    cpu = process_time() - before
    decoded = original.with_name(f"{original.stem}-{name}-{quality}.bmp")
    decoded.write_bytes(pipeline.run(back, [encoded]).data)
    return len(encoded), cpu, decoded


def _encode_by(peer: Encoder, registry: Registry, original: Path) -> tuple[int, float, Path]:
    """As `_encode`, for another encoder."""
    source = original.with_suffix(".png")
    Image.open(original).save(source)
    file, cpu = peer.encode(source)
    decoded = file.with_name(f"{file.name}.bmp")
    plan = registry.plan([registry.formats[peer.format]], "bmp")
    decoded.write_bytes(pipeline.run(plan, [file.read_bytes()]).data)
    return file.stat().st_size, cpu, decoded


def _ssimulacra2(python: Path, original: Path, images: Sequence[Path]) -> list[float]:
    command: list[str | Path] = [python, "-c", _PROGRAM, original, *images]
    return [float(line) for line in subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.split()]


def _row(setting: Setting, default: int, encodings: Sequence[Encoding], jpeg: Sequence[Encoding]) -> Row:
    """Medians over the photos; the size is relative to the JPEG of the same photo at its default quality."""
    name, quality = setting
    scores = [one.score for one in encodings]
    sizes = [one.size / other.size for one, other in zip(encodings, jpeg, strict=True)]
    of_scores = (median(scores), min(scores), max(scores))
    return name, quality, "yes" if quality == default else "", *of_scores, median(sizes), _cpu_ms(encodings)


def _requirement(name: str, encodings: Sequence[Encoding]) -> Row:
    score = median(one.score for one in encodings)
    return required(f"{name}: score at the default quality", score, f">= {_SCORE}", met=score >= _SCORE)
