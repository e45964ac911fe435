"""Random combinations of options give the size and the pixels that a model says, in 8 and in 16 bits.

The model works on arrays of the whole image in floating point, with libvips for filters, one option after the other
in the documented order.

The options at their limits work too, and the built-in plugins pass the checks of `engine.testing`.
"""

import random
from collections.abc import Iterator
from itertools import product
from math import ceil, floor, sqrt
from typing import Any

import numpy as np
import pytest
import pyvips
from numpy.typing import NDArray
from PIL import Image

from engine import InvalidOption, Option, OptionValue, testing
from engine.registry import load_registry
from engine.testing import Sandbox, Subject
from tests.support.results.conversions import codes, convert, convert_with, opened
from tests.support.samples.generated import quadrants, sample, saved
from tests.support.samples.mails import mail, outlook
from tests.support.samples.pairs import every
from tests.support.samples.rasters import photo

_SIZE = (180, 130)
_LUMINANCE = np.array([[0.213, 0.715, 0.072]] * 3)
_ROUNDS, _LONG_ROUNDS = 12, 300
_MARK = (200, 30, 60)
_FROM_SRGB = {  # light, as published for these primaries
    "p3": [[0.8225, 0.1774, 0], [0.0332, 0.9669, 0], [0.0171, 0.0724, 0.9108]],
    "adobe-rgb": [[0.7152, 0.2848, 0], [0, 1, 0], [0, 0.0412, 0.9588]],
}
_TEXTS: dict[str, tuple[str, ...]] = {
    "background": ("#000000", "#ffffffff", "#00000000"),
    "crop": ("1:9999", "9999:1", "0,0,1,1", "29,19,1,1", "0%,0%,100%,100%"),
    "filename": ("{width}",),
    "frames": ("every:2", "every:999"),
    "gravity": ("0,0", "1,1", "attention"),
    "output_profile": ("srgb", "fogra39"),
    "pad": ("0", "0%", "999%", "99999", "1,0,0,0"),
    "pages": ("1", "all"),
    "radius": ("0", "0%", "0.0001%", "999%", "99999"),
    "scale": ("1%", "1000%"),
    "watermark_color": ("black", "#00000000"),
    "watermark_position": ("0,0", "1,1", "tile"),
    "watermark_text": (".", "M" * 200),
}
_FILES = {"watermark"}  # options that are files only
_NEEDED: dict[str, dict[str, OptionValue]] = {"gravity": {"crop": "1:1"}, "dpr": {"width": 10}, "dither": {"colors": 4}}
_REGISTRY = load_registry()
# A file of Office takes a second: its plugins have tests of their own.
_PLUGINS = [one for one in _REGISTRY.plugins if (one.reads or one.writes) and not one.name.startswith("office")]
_MAILS = {"eml": mail().as_bytes(), "msg": outlook()}
_READING = [plugin for plugin in _PLUGINS if plugin.reads]


def _choices(chance: random.Random) -> dict[str, OptionValue]:
    """Some of the options."""
    every: dict[str, Any] = {
        "trim": lambda: chance.choice([5, 20]),
        "crop": lambda: chance.choice(["16:9", "1:2", "10%,20%,50%,60%", "3,5,60,50"]),
        "gravity": lambda: chance.choice(["north", "southeast", "0.2,0.9"]),
        "rotate": lambda: chance.choice([90, 180, 270]),
        "flip": lambda: chance.choice(["horizontal", "vertical"]),
        "width": lambda: chance.randint(20, 80),
        "height": lambda: chance.randint(20, 80),
        "fit": lambda: chance.choice(["cover", "fill", "outside"]),
        "dpr": lambda: chance.choice([1.5, 2]),
        "scale": lambda: f"{chance.randint(20, 90)}%",
        "max_pixels": lambda: chance.randint(500, 5000),
        "brightness": lambda: chance.uniform(0.3, 1.8),
        "contrast": lambda: chance.uniform(0.3, 1.8),
        "saturation": lambda: chance.uniform(0, 2),
        "gamma": lambda: chance.uniform(0.5, 2),
        "blur": lambda: chance.uniform(0.4, 4),
        "sharpen": lambda: chance.uniform(0.5, 2),
        "pixelate": lambda: chance.randint(2, 9),
        "watermark_position": lambda: chance.choice(["northwest", "south", "0.3,0.6", "tile"]),
        "watermark_opacity": lambda: chance.uniform(0, 1),
        "watermark_size": lambda: chance.uniform(5, 100),
        "watermark_margin": lambda: chance.uniform(0, 20),
        "watermark_angle": lambda: chance.choice([90, -90, 180]),
        "radius": lambda: chance.choice(["6", "50%"]),
        "pad": lambda: chance.choice(["7", "1,2,3,4", "10%"]),
        "background": lambda: chance.choice(["#123456", "#fff"]),
        "output_profile": lambda: chance.choice(["p3", "adobe-rgb", "srgb"]),
    }
    return {name: choose() for name, choose in every.items() if chance.random() < 0.3}


def _files(options: dict[str, OptionValue]) -> dict[str, bytes]:
    """The watermark, if an option is about one."""
    given = any(name.startswith("watermark_") for name in options)
    return {"watermark": saved(Image.new("RGB", (24, 12), _MARK), "PNG")} if given else {}


class _Model:
    """Colors from 0 to 1 and alpha, after the options."""

    def __init__(self, samples: NDArray[Any], options: dict[str, Any]) -> None:
        self.options = options
        self.samples = samples
        self.has_alpha = False
        for step in (self._trim, self._crop, self._turn, self._resize, self._adjust, self._filter, self._mark):
            step()
        self._border()
        self._convert()

    @property
    def size(self) -> tuple[int, int]:
        return self.samples.shape[1], self.samples.shape[0]

    def _cut(self, left: int, top: int, width: int, height: int) -> None:
        self.samples = self.samples[top : top + height, left : left + width]

    def _trim(self) -> None:
        if "trim" in self.options:
            other = np.abs(self.samples - self.samples[0, 0]).max(axis=-1) * 100 > self.options["trim"]
            rows, columns = np.flatnonzero(other.any(axis=1)), np.flatnonzero(other.any(axis=0))
            if len(rows):
                self._cut(columns[0], rows[0], columns[-1] - columns[0] + 1, rows[-1] - rows[0] + 1)

    def _place(self, width: int, height: int, whole: tuple[int, int]) -> tuple[int, int]:
        points = {"north": (0.5, 0), "southeast": (1, 1), "0.2,0.9": (0.2, 0.9)}
        x, y = points.get(self.options.get("gravity", ""), (0.5, 0.5))
        left, top = floor(x * whole[0] - width / 2), floor(y * whole[1] - height / 2)
        return min(max(left, 0), whole[0] - width), min(max(top, 0), whole[1] - height)

    def _crop(self) -> None:
        crop, (across, down) = self.options.get("crop", ""), self.size
        if ":" in crop:
            ratio = float(crop.partition(":")[0]) / float(crop.partition(":")[2])
            width, height = min(across, max(1, round(down * ratio))), min(down, max(1, round(across / ratio)))
            self._cut(*self._place(width, height, self.size), width, height)
        elif "%" in crop:
            left, top, right, bottom = (round(share) for share in (across / 10, down / 5, across * 0.6, down * 0.8))
            self._cut(left, top, right - left, bottom - top)
        elif crop:
            self._cut(3, 5, 60, 50)

    def _turn(self) -> None:
        self.samples = np.rot90(self.samples, -self.options.get("rotate", 0) // 90)
        if "flip" in self.options:
            self.samples = self.samples[:, ::-1] if self.options["flip"] == "horizontal" else self.samples[::-1]

    def _resize(self) -> None:
        whole, part = self._sizes()
        across, down = (own / scaled for own, scaled in zip(self.size, whole, strict=True))
        x, y = self._place(*part, whole)
        if part != self.size:
            box = (x * across, y * down, (x + part[0]) * across, (y + part[1]) * down)
            box = (*box[:2], min(box[2], self.size[0]), min(box[3], self.size[1]))
            bands = [
                np.asarray(Image.fromarray(band.astype(np.float32)).resize(part, Image.Resampling.LANCZOS, box))
                for band in np.moveaxis(self.samples, -1, 0)
            ]
            self.samples = np.clip(np.dstack(bands), 0, 1)

    def _sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of the whole image and of the part that stays. Written in another way than the code: by scales."""
        given, (across, down) = self.options, self.size
        ratio = given.get("dpr", 1)
        width, height = (given.get(name) and max(1, round(given[name] * ratio)) for name in ("width", "height"))
        fit = given.get("fit", "inside")
        whole = part = (across, down)
        if not (width or height) and "scale" in given:
            share = float(given["scale"][:-1]) / 100
            whole = part = (max(1, round(across * share)), max(1, round(down * share)))
        elif width and height and fit == "fill":
            shrink = min(1, across / width, down / height)
            whole = part = _reached(width, height, shrink, across, down)
        elif width and height and fit == "cover":
            shrink = min(1, across / width, down / height)
            box = _reached(width, height, shrink, across, down)
            scale = max(box[0] / across, box[1] / down)
            whole = (max(box[0], floor(across * scale + 0.5)), max(box[1], floor(down * scale + 0.5)))
            part = box
        elif width or height:
            scales = [side / own for side, own in ((width, across), (height, down)) if side]
            scale = (max if fit == "outside" else min)(scales)
            if scale <= 1:
                sides = [
                    side if side and scale == side / own else max(1, floor(own * scale + 0.5))
                    for side, own in ((width, across), (height, down))
                ]
                whole = part = (sides[0], sides[1])
        limit = given.get("max_pixels")
        if limit and part[0] * part[1] > limit:
            shrink = sqrt(limit / (part[0] * part[1]))
            smaller = [tuple(max(1, int(side * shrink)) for side in size) for size in (whole, part)]
            whole, part = (smaller[0], smaller[1]) if whole != part else (smaller[1], smaller[1])  # type: ignore[assignment]
        return whole, part

    def _adjust(self) -> None:
        given = self.options
        samples = np.clip(self.samples * given.get("brightness", 1), 0, 1)
        samples = np.clip((samples - 0.5) * given.get("contrast", 1) + 0.5, 0, 1)
        saturation = given.get("saturation", 1)
        samples = np.clip(samples @ (saturation * np.eye(3) + (1 - saturation) * _LUMINANCE).T, 0, 1)
        self.samples = samples ** (1 / given.get("gamma", 1))

    def _filter(self) -> None:
        given = self.options
        for name in ("blur", "sharpen"):
            if name in given:
                image = pyvips.Image.new_from_array(self.samples.astype(np.float32))
                blurred = image.gaussblur(given[name], precision="float", min_ampl=0.005)
                changed = blurred if name == "blur" else image * 2 - blurred
                self.samples = np.clip(changed.numpy(), 0, 1)
        side = given.get("pixelate", 1)
        result = self.samples.copy()
        for top in range(0, result.shape[0], side):
            for left in range(0, result.shape[1], side):
                square = (slice(top, top + side), slice(left, left + side))
                result[square] = self.samples[square].mean(axis=(0, 1))
        self.samples = result

    def _mark(self) -> None:
        """A mark of one color, whose shape alone depends on its size."""
        given, (width, height) = self.options, self.size
        if not _files(given):
            return
        turned, tiled = abs(given.get("watermark_angle", 0)) == 90, given.get("watermark_position") == "tile"
        margin = round(width * given.get("watermark_margin", 2) / 100)
        inner = (width, height) if tiled else (max(1, width - 2 * margin), max(1, height - 2 * margin))
        across, down = (0.5, 1.0) if turned else (1.0, 0.5)  # The sides of the mark are relative to its width.
        most = min(width * given.get("watermark_size", 25) / 100, inner[0] / across, inner[1] / down)
        sides = max(1, round(most)), max(1, round(most / 2))
        sides = sides[::-1] if turned else sides
        sides = min(sides[0], inner[0]), min(sides[1], inner[1])
        points = {"northwest": (0, 0), "south": (0.5, 1), "0.3,0.6": (0.3, 0.6)}
        point = points.get(given.get("watermark_position", ""), (1, 1))
        left, top = (
            min(max(floor(share * whole - part / 2), 0), whole - part)
            for share, whole, part in zip(point, inner, sides, strict=True)
        )
        above = np.zeros((height, width, 1))
        columns = range(0, width, sides[0] + margin) if tiled else [left + (width - inner[0]) // 2]
        rows = range(0, height, sides[1] + margin) if tiled else [top + (height - inner[1]) // 2]
        for x, y in product(columns, rows):
            above[y : y + sides[1], x : x + sides[0]] = given.get("watermark_opacity", 0.5)
        self.samples = self.samples * (1 - above) + np.array(_MARK) / 255 * above

    def _convert(self) -> None:
        """The light of sRGB as light of other primaries, with another curve."""
        name = self.options.get("output_profile", "srgb")
        light = np.where(self.samples <= 0.04045, self.samples / 12.92, ((self.samples + 0.055) / 1.055) ** 2.4)
        light = np.clip(light @ np.array(_FROM_SRGB.get(name, np.eye(3))).T, 0, 1)
        curve = np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)
        self.samples = light ** (256 / 563) if name == "adobe-rgb" else curve

    def _border(self) -> None:
        (width, height), given = self.size, self.options
        alpha = np.ones((height, width))
        if "radius" in given:
            limit = min(width, height) / 2
            radius = limit if given["radius"] == "50%" else min(6, limit)
            x, y = (np.abs(np.arange(side) + 0.5 - side / 2) - (side / 2 - radius) for side in (width, height))
            distance = np.hypot(np.maximum(x, 0)[None], np.maximum(y, 0)[:, None])
            alpha = np.clip(radius - distance + 0.5, 0, 1)
            inner = (x[None] <= 0) | (y[:, None] <= 0)
            alpha = np.where(inner, 1, alpha)
            self.has_alpha = True
        back = given.get("background")
        color = np.array([int(back[at : at + 2], 16) for at in (1, 3, 5)] if back == "#123456" else [255] * 3) / 255
        widths = {"7": (7,) * 4, "1,2,3,4": (1, 2, 3, 4), "10%": [round(side / 10) for side in (height, width) * 2]}
        top, right, bottom, left = widths.get(given.get("pad", ""), (0,) * 4)
        canvas = np.empty((top + height + bottom, left + width + right, 3))
        canvas[:] = color
        around = np.full(canvas.shape[:2], 0.0 if self.has_alpha and not back else 1.0)
        canvas[top : top + height, left : left + width] = self.samples
        around[top : top + height, left : left + width] = alpha
        if back:
            canvas = canvas * around[..., None] + color * (1 - around[..., None])
            around = np.ones(around.shape)
            self.has_alpha = False
        self.samples, self.alpha = canvas, around


def _reached(width: int, height: int, shrink: float, across: int, down: int) -> tuple[int, int]:
    if shrink == 1:
        return width, height
    if shrink == across / width:
        return across, max(1, floor(height * shrink + 0.5))
    return max(1, floor(width * shrink + 0.5)), down


def _source(deep: bool) -> tuple[bytes, NDArray[Any]]:
    """A photo with a border of one color, as PNG and as samples from 0 to 1."""
    image = Image.new("RGB", _SIZE, (230, 240, 250))
    image.paste(photo((150, 110)), (20, 12))
    samples = np.asarray(image)
    if not deep:
        return saved(image, "PNG"), samples / 255
    wide = samples.astype(np.uint16) * 257
    return pyvips.Image.new_from_array(wide).copy(interpretation="rgb16").pngsave_buffer(), wide / 65535


def _rounds(config: pytest.Config) -> int:
    return _LONG_ROUNDS if config.getoption("long") else _ROUNDS


@pytest.mark.parametrize("deep", [False, True])
def test_combinations_are_as_the_model(deep: bool, pytestconfig: pytest.Config) -> None:
    data, samples = _source(deep)
    for seed in range(_rounds(pytestconfig)):
        options = _choices(random.Random(1000 * deep + seed))
        model = _Model(samples, options)

        found = pyvips.Image.pngload_buffer(convert_with(data, "png", _files(options), **options).data).numpy()

        pixels = found.astype(float) / np.iinfo(found.dtype).max
        assert (pixels.shape[1], pixels.shape[0]) == model.size, (seed, options)
        assert (pixels.shape[2] == 4) == model.has_alpha, (seed, options)
        assert found.dtype == (np.uint16 if deep else np.uint8)
        alpha = pixels[..., 3] if model.has_alpha else np.ones(pixels.shape[:2])
        difference = pixels[..., :3] * alpha[..., None] - model.samples * model.alpha[..., None]
        error = sqrt(float((difference**2).mean()) + float(((alpha - model.alpha) ** 2).mean()))
        assert error < 0.01, (seed, options, error)  # 40 dB


def test_the_model_knows_other_sizes() -> None:
    """A model that agrees with everything would prove nothing."""
    data, samples = _source(False)

    assert opened(convert(data, "png", crop="16:9").data).size == _Model(samples, {"crop": "16:9"}).size == (180, 101)
    assert _Model(samples, {"crop": "1:2", "pad": "7"}).size != _Model(samples, {"crop": "1:2"}).size
    assert ceil(_Model(samples, {"trim": 5}).size[0]) == 150


def _values(option: Option) -> Iterator[OptionValue]:
    schema = option.schema
    yield from schema.get("enum", [schema["const"]] if "const" in schema else [])
    yield from (schema[limit] for limit in ("minimum", "maximum") if limit in schema)
    yield from (True, False) if schema["type"] == "boolean" else ()
    yield from _TEXTS.get(option.name, ())


@pytest.mark.parametrize(("size", "target", "wrong"), [((30, 20), "webp", {"pad"}), ((1, 1), "png", {"crop", "pad"})])
def test_options_work_at_their_limits(size: tuple[int, int], target: str, wrong: set[str]) -> None:
    registry, data = load_registry(), saved(photo(size), "PNG")
    plan = registry.plan([registry.formats["png"]], target, options={})
    refused = set()
    for name, option in plan.options.items():
        values = list(_values(option))
        assert values or name in _FILES
        of_watermark = name.startswith("watermark_") and name != "watermark_text"
        needed = {"watermark_text": "A"} if of_watermark else _NEEDED.get(name, {})
        for value in values:
            try:
                convert(data, target, **{name: value}, **needed)
            except InvalidOption as error:
                refused.add((name, error.param, error.reason))
    assert refused == {(name, name, "out_of_range") for name in wrong}


def _subject(name: str) -> Subject:
    plugin = next(plugin for plugin in _PLUGINS if plugin.name == name)
    samples = {fmt.name: [_MAILS.get(fmt.name) or sample(fmt.name)] for fmt in plugin.reads}
    return Subject(plugin, samples, _REGISTRY)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with testing.running_sandbox(_REGISTRY.modules) as running:
        yield running


@pytest.mark.parametrize("name", [plugin.name for plugin in _PLUGINS])
def test_declarations_detection_and_round_trips(name: str) -> None:
    subject = _subject(name)

    assert {title: check(subject) for title, check in testing.CHECKS.items()} == {title: [] for title in testing.CHECKS}


@pytest.mark.parametrize("name", every(3, [plugin.name for plugin in _READING]))
def test_damaged_files(sandbox: Sandbox, name: str) -> None:
    assert testing.check_hostile_files(_subject(name), sandbox, count=1) == []


def test_options_of_all_steps() -> None:
    """Of plugins that read no format, as those that do are checked with samples."""
    checked = [Subject(plugin, {}, _REGISTRY) for plugin in _REGISTRY.plugins if not plugin.reads]
    faults = {subject.plugin.name: testing.check_declarations(subject) for subject in checked}

    assert {name: found for name, found in faults.items() if found} == {}


@pytest.mark.parametrize("name", ["gravity", "watermark_position"])
def test_points_are_inside_the_image(name: str) -> None:
    option = load_registry().options[name]

    for inside in ("0.3,0.7", "0,1", "1.0, .5"):
        assert option.validate(inside) == inside
    for outside in ("1.2", "1.2,0.5", "0.5,1.01", "-0.1,0"):
        with pytest.raises(InvalidOption) as raised:
            option.validate(outside)
        assert (raised.value.reason, raised.value.param) == ("malformed", name)


@pytest.mark.parametrize(
    ("target", "options", "mode", "corner"),
    [
        ("png", {}, "P", (255, 255, 255, 0)),
        *((target, {}, "RGBA", (255, 255, 255, 0)) for target in ("webp", "tiff", "tga")),
        ("gif", {}, "P", (0, 0, 0, 0)),
        ("tiff", {"compression": "jpeg"}, "RGB", (255, 255, 255, 255)),
        ("jpeg", {}, "RGB", (255, 255, 255, 255)),
        ("jpeg", {"output_profile": "swop"}, "CMYK", (255, 255, 255, 255)),
        ("png", {"bit_depth": 16}, "RGBA", (255, 255, 255, 0)),
        ("png", {"pad": "3"}, "P", (255, 255, 255, 0)),
    ],
)
def test_contain_pads_with_transparency_where_the_target_has_it(
    target: str, options: dict[str, Any], mode: str, corner: tuple[int, ...]
) -> None:
    data = saved(quadrants((40, 20)), "PNG")

    result = convert(data, target, width=40, height=40, fit="contain", **options)

    assert codes(result) == set()
    assert (opened(result.data).mode, opened(result.data).convert("RGBA").getpixel((1, 1))) == (mode, corner)
    rounded = convert(data, target, width=40, height=40, fit="contain", radius="5", **options)
    assert ("alpha_flattened" in codes(rounded)) is (mode in ("RGB", "CMYK"))
