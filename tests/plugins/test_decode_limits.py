"""Limits on pixels, frames and sides are checked before decoding, with the limit in the details of the error."""

import resource

import pytest
from PIL import Image

from engine import Frame, Raster, TooLarge, pipeline
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, MAX_TOTAL_PIXELS
from engine.registry import load_registry
from tests.support.samples.generated import saved
from tests.support.samples.hostile import hostile_files, png

_REGISTRY = load_registry()


def _refusal(data: bytes, target: str) -> TooLarge:
    plan = _REGISTRY.plan([_REGISTRY.identify_content(data)], target)
    with pytest.raises(TooLarge) as raised:
        pipeline.run(plan, [data])
    return raised.value


def _line(length: int, *, across: int = 2) -> bytes:
    return saved(Image.new("L", (length, across), 99), "PNG")


@pytest.mark.parametrize(
    ("target", "longest"), [("jpeg", 65_500), ("webp", 16_383), ("avif", 32_768), ("gif", 65_535), ("psd", 30_000)]
)
def test_a_side_longer_than_the_target_supports(target: str, longest: int) -> None:
    refused = _refusal(_line(longest + 1), target)

    assert refused.reason == "pixels"
    assert refused.details == {"max_side": longest, "width": longest + 1, "height": 2}
    plan = _REGISTRY.plan([_REGISTRY.formats["png"]], target)
    result = pipeline.run(plan, [_line(longest)]).data
    reader = _REGISTRY.reader(plan.target)
    assert reader is not None
    assert reader(result).sizes[0] == (longest, 2)


@pytest.mark.parametrize(("across", "longest"), [(2, 4096), (32, 32_768)])
def test_a_side_longer_than_heic_supports(across: int, longest: int) -> None:
    assert _refusal(_line(longest + 1, across=across), "heic").details["max_side"] == longest
    pipeline.run(_REGISTRY.plan([_REGISTRY.formats["png"]], "heic"), [_line(longest, across=across)])


def test_the_error_contains_the_limit_and_the_size() -> None:
    details = _refusal(png(20_000, 20_000), "jpeg").details

    assert details == {"max_pixels": MAX_PIXELS, "pixels": 400_000_000}


def test_many_frames_are_counted_and_not_decoded() -> None:
    decoded: list[int] = []

    def frames() -> list[Frame]:
        decoded.append(1)
        return [Frame(Image.new("L", (4, 4)))]

    raster = Raster((frame for frame in frames()), count=MAX_FRAMES + 1, animated=True, sizes=[(4, 4)] * 501)
    decoded.clear()
    with pytest.raises(TooLarge) as raised:
        _REGISTRY.plan([_REGISTRY.formats["gif"]], "webp").steps[-1](raster)

    assert raised.value.reason == "frames"
    assert raised.value.details == {
        "max_frames": MAX_FRAMES,
        "frames": 501,
        "max_total_pixels": MAX_TOTAL_PIXELS,
        "total_pixels": 501 * 16,
    }
    assert not decoded


@pytest.mark.parametrize("name", ["png_claim", "webp_claim", "tiff_directories", "gif_pixels_together", "svg_uses"])
def test_a_refusal_takes_no_memory(name: str) -> None:
    hostile = next(hostile for hostile in hostile_files() if hostile.name == name)
    data = hostile.make(None)  # type: ignore[arg-type]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    _refusal(data, hostile.target)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB
