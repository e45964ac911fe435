"""In-memory formats shared by all plugins: RASTER (decoded pictures) and DOCUMENT (an open document)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat, tee
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from PIL import Image

from engine import color
from engine.capabilities import TargetCapabilities
from engine.conversions import FidelityWarning
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, Size, check_count, check_side, limit_pictures
from engine.errors import InvalidOption
from engine.formats import FileFormat, Format
from engine.gain_map import GainMap, without_gain_map
from engine.hdr import HdrColors
from engine.origin import Origin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pymupdf import Document

Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow raises above twice this number

DOCUMENT: Format[Document] = Format("document", "pymupdf.Document", lazy=True)


@dataclass(frozen=True, slots=True)
class DeepPixels:
    """Pixels with 16 bits per sample, for which Pillow has no mode.

    `array` is height x width (x bands), 0 to 65535. `mode` names the bands as Pillow does (L, LA, RGB, …).
    """

    array: NDArray[np.uint16]
    mode: str

    @classmethod
    def from_bits(cls, array: NDArray[np.uint16], bits: int, mode: str) -> DeepPixels:
        """Scales samples of `bits` bits to the full 16-bit range."""
        return cls(array if bits == 16 else color.scale(array, (1 << bits) - 1, 65535), mode)

    def to_bits(self, bits: int) -> NDArray[np.uint16]:
        """The samples scaled to `bits` bits, right-aligned. Reverses `from_bits`."""
        return self.array if bits == 16 else color.scale(self.array, 65535, (1 << bits) - 1)

    @classmethod
    def from_image(cls, image: Image.Image) -> DeepPixels:
        """Widens the samples of an L, LA, RGB, RGBA or CMYK picture to 16 bits."""
        import numpy as np

        return cls.from_bits(np.asarray(image, np.uint16), 8, image.mode)

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.array.shape[1], self.array.shape[0]

    def as_image(self) -> Image.Image:
        """The pixels scaled to 8 bits per sample."""
        return Image.fromarray(color.to_8_bits(self.array), self.mode)


@dataclass(frozen=True, slots=True)
class Frame:
    """One upright picture. `duration` is in milliseconds, for frames of an animation.

    `full_size` is the size to which the options of crop and resize refer, if the decoder produced another one.
    `cropped`: the decoder has drawn the part that the option crop selects. `dpi` is the resolution of this frame, if it
    has another one than the raster.
    """

    pixels: Image.Image | DeepPixels
    icc_profile: bytes | None = None
    duration: float = 0.0
    full_size: Size | None = None
    cropped: bool = False
    dpi: tuple[float, float] | None = None

    @property
    def size(self) -> Size:
        """Width and height."""
        return self.pixels.size

    @property
    def image(self) -> Image.Image:
        """The picture with 8 bits per sample."""
        return self.pixels if isinstance(self.pixels, Image.Image) else self.pixels.as_image()


@dataclass
class Raster:
    """Decoded frames with their metadata. Frames are decoded lazily, one at a time.

    `frames` yields frames with 8 bits per sample. `deep_frames`, if the source has a higher depth, yields the same
    frames with 16. A consumer iterates over one of the two, once.
    `sizes` are the frame sizes from the file's headers, so that limits are checked before decoding; `drawn_sizes`
    are the sizes to which the decoder scales them, and `decoded_sizes` the sizes of the frames decoded so far.
    `animated` distinguishes an animation from pages. `loop_count` is how often an animation plays; 0: forever.
    `exif` starts with "Exif\\0\\0" and describes upright pixels; `xmp` is the XMP packet, `iptc` are the datasets of
    IPTC-IIM, `text` are comments and texts with their keywords. `adapt_metadata` returns the raster with what a target
    holds of them, and tells what is lost. `dpi` is (horizontal, vertical). `lossy`: the pixels come
    from a lossy codec. `turned`: the decoder has turned the pixels upright. `bare`: the file is known to have no
    metadata but profile, resolution and timing. `scalable`: the pixels are drawn from vectors, at the size requested.
    `developed`: they are developed from sensor data, for which fewer bits are no loss. `resized`: the request
    determines the sizes. `background` (red, green, blue, alpha) is the color to lay under the frames. `bit_depth` is
    the requested number of bits per sample, `source_bit_depth` the number in the source of `deep_frames`, or of gray
    with fewer than 8; if it is above 16, these issue a FidelityWarning where they lose some. `hdr` is what the samples
    mean if they are of high dynamic range; frames then have no profile. `gain_map` adds it to a single one. `sample` is
    a frame of one transparent pixel with the mode, depth and profile of the frames, if the header states them. `origin`
    is the file of one picture from which it was decoded, for encoders of its format.
    """

    frames: Iterable[Frame]
    count: int = 1
    deep_frames: Iterable[Frame] | None = None
    animated: bool = False
    loop_count: int = 0
    exif: bytes | None = None
    xmp: bytes | None = None
    iptc: bytes | None = None
    text: tuple[tuple[str, str], ...] = ()
    adapt_metadata: Callable[[Raster, TargetCapabilities], Raster] | None = None
    dpi: tuple[float, float] | None = None
    lossy: bool = False
    turned: bool = False
    bare: bool = False
    scalable: bool = False
    developed: bool = False
    resized: bool = False
    background: tuple[int, int, int, int] | None = None
    bit_depth: int | None = None
    source_bit_depth: int = 16
    hdr: HdrColors | None = None
    gain_map: GainMap | None = None
    sample: Frame | None = None
    origin: Origin | None = None
    sizes: Sequence[Size] = ()
    drawn_sizes: Sequence[Size] = ()
    decoded_sizes: list[Size] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.frames = limit_pictures(self.frames, self.decoded_sizes, self.kind)
        if self.deep_frames is not None:
            self.deep_frames = limit_pictures(self.deep_frames, self.decoded_sizes, self.kind)

    @property
    def kind(self) -> str:
        """ "frames" for an animation, otherwise "pages"."""
        return "frames" if self.animated else "pages"

    @property
    def peak_pixels(self) -> int | None:
        """Pixels in memory at once: all frames of an animation, or the largest page. None if a size is unknown."""
        if len(self.sizes) < self.count:
            return None
        areas = [width * height for width, height in self.drawn_sizes or self.sizes]
        return sum(areas) if self.animated else max(areas)

    def converted_for(self, target: TargetCapabilities) -> Raster:
        """The raster reduced to what `target` supports. Issues a FidelityWarning for each loss.

        The result's `bit_depth` is the depth of its frames. Raises InvalidOption if the target does not support the
        requested one, TooLarge if the remaining frames exceed the limits on frames or pixels.
        """
        raster = self._select_frames(target)
        raster = raster if raster.adapt_metadata is None else raster.adapt_metadata(raster, target)
        target = target.for_animation() if raster.animated and target.animation_modes else target
        depth = self._bit_depth_for(target)
        few_bits = depth == 8 and raster.deep_frames is not None  # would show bands
        opaque = raster.sample is not None and raster.sample.pixels.mode in ("L", "RGB")
        raster = raster if target.gain_map else without_gain_map(raster)
        if (raster.hdr and (few_bits or not target.hdr)) or (raster.background and not opaque):
            raster = raster.tone_mapped()  # because the background is in sRGB
        check_count(raster.count, raster.sizes, self.kind)
        if target.max_side:
            _check_sides(raster, target, target.max_side)
        frames = raster.frames if raster.deep_frames is None or depth == 8 else raster.deep_frames
        converted = (_convert_frame(frame, target, raster, depth) for frame in frames)
        return replace(raster, frames=converted, deep_frames=None, bit_depth=depth)

    def tone_mapped(self) -> Raster:
        """The raster in sRGB if it has high dynamic range, with a FidelityWarning."""
        hdr = self.hdr
        if hdr is None:
            return without_gain_map(self)
        FidelityWarning.issue("hdr_reduced", "High dynamic range was reduced to that of sRGB.")
        mapped = replace(self.map(lambda frame: replace(frame, pixels=_tone_map(frame.pixels, hdr))), hdr=None)
        if mapped.deep_frames is None:
            return mapped
        # From 16 bits, because 8 are few for HDR.
        return replace(mapped, frames=(replace(frame, pixels=frame.image) for frame in mapped.deep_frames))

    def map(self, convert: Callable[[Frame], Frame], new_size: Callable[[Size], Size] | None = None) -> Raster:
        """The raster with `convert` applied to each frame when it is read. `new_size` is the effect on sizes."""
        return replace(
            self,
            frames=map(convert, self.frames),  # unlike a generator expression, it keeps no frame alive
            deep_frames=None if self.deep_frames is None else map(convert, self.deep_frames),
            sample=self.sample if new_size or self.sample is None else convert(self.sample),
            sizes=[new_size(size) for size in self.sizes] if new_size else self.sizes,
            drawn_sizes=() if new_size else self.drawn_sizes,
            origin=self.origin and self.origin.changed(),
            gain_map=self.gain_map and self.gain_map.map(convert),
        )

    def foresee(self, target: TargetCapabilities, max_pixels: int) -> None:
        """Issues the warnings and raises the errors of `converted_for`, as far as the header proves them.

        If they depend on the pixels, as transparency does, pictures of up to `max_pixels` are decoded to find out.
        """
        with catch_warnings(record=True) as caught:
            simplefilter("always")
            sample = self.sample and replace(self.sample, full_size=None)
            stand_in = replace(self, frames=[sample] if sample else [], deep_frames=None)
            if self.deep_frames is not None:
                stand_in.deep_frames = stand_in.frames
            list(stand_in.converted_for(target).frames)
        foreseen = [one.message for one in caught if isinstance(one.message, FidelityWarning)]
        proven = [one for one in foreseen if not one.code.startswith("alpha_")]
        depends_on_pixels = sample is None or self.source_bit_depth > 16 or proven != foreseen
        if depends_on_pixels and (self.peak_pixels or 0) <= max_pixels:
            for _ in self.converted_for(target).frames:
                pass
            return
        for one in proven:
            FidelityWarning.issue(one.code, one.message)

    def split(self) -> Iterator[Raster]:
        """Yields each frame as a raster of its own, which must be used before the next one.

        Raises TooLarge if the frames exceed the limits on frames or pixels.
        """
        check_count(self.count, self.sizes, self.kind)
        for index in range(self.count):
            yield self._next_frame(self.sizes[index : index + 1])

    def copies(self) -> Iterator[Raster]:
        """Yields the raster any number of times. Its frames are decoded once and stay in memory."""
        frames, deep_frames = self.frames, self.deep_frames
        while True:
            frames, given = tee(frames)
            deep_frames, given_deep = (None, None) if deep_frames is None else tee(deep_frames)
            yield replace(self, frames=given, deep_frames=given_deep)

    def first_frame(self, target: TargetCapabilities | None = None) -> Frame:
        """The first frame; reduced to what `target` supports, which encoders leave to their declaration."""
        # Reading to the end releases what the decoder and the steps after it hold.
        frame, *_ = (self.converted_for(target) if target else self).frames
        return frame

    def _bit_depth_for(self, target: TargetCapabilities) -> int:
        """The requested bit depth, or the source's, or the next one that the target supports."""
        available = target.bit_depths
        if self.bit_depth is not None:
            if self.bit_depth not in available:
                names = " or ".join(map(str, available))
                raise InvalidOption(
                    f"bit_depth must be {names} for this target.",
                    reason="out_of_range",
                    param="bit_depth",
                    details={"available": list(available)},
                )
            return self.bit_depth
        source = 8 if self.deep_frames is None else min(self.source_bit_depth, 16)
        depth = next((bits for bits in available if bits >= source), available[-1])
        if depth < source and not self.developed:
            FidelityWarning.issue("depth_reduced", f"The target supports {depth} bits per sample.")
        return depth

    def _select_frames(self, target: TargetCapabilities) -> Raster:
        if self.count == 1 or target.pages or (self.animated and target.animation_modes):
            if self.count > 1 and self.animated and not target.animation_modes:
                FidelityWarning.issue("timing_dropped", "Frames become pages without durations.")
            return self
        count = self.count if self.count <= MAX_FRAMES else f"more than {MAX_FRAMES}"
        FidelityWarning.issue(f"{self.kind}_dropped", f"Only the first of {count} {self.kind} was converted.")
        return self._next_frame(self.sizes[:1])

    def _next_frame(self, sizes: Sequence[Size]) -> Raster:
        deep_frames = None if self.deep_frames is None else islice(self.deep_frames, 1)
        first = replace(self, frames=islice(self.frames, 1), deep_frames=deep_frames, sizes=sizes, drawn_sizes=())
        return replace(first, count=1, animated=False)


RASTER = Format("raster", Raster)


@dataclass(frozen=True)
class Pictures:
    """The number of pictures or pages of a payload or file, and the size of the first one in pixels.

    Vectors and documents have no size, and neither has a picture whose header does not state it.
    """

    count: int
    size: Size | None = None


def pictures(payload: Any) -> Pictures | None:
    """The pictures of a payload in memory; None for other payloads."""
    if isinstance(payload, Raster):
        return Pictures(payload.count, payload.sizes[0] if payload.sizes and not payload.scalable else None)
    return Pictures(payload.page_count) if DOCUMENT.holds(payload) else None


def files_needed(payload: Any, target: FileFormat) -> int:
    """The number of files of the format `target` that hold all pictures or pages of the payload."""
    found = pictures(payload)
    animation = isinstance(payload, Raster) and payload.animated
    return 1 if found is None or target.paged or (animation and target.animated) else found.count


def split(payload: Any) -> Iterator[Any]:
    """Yields each picture or page as a payload of its own, which must be used before the next one."""
    if isinstance(payload, Raster):
        yield from payload.split()
    elif DOCUMENT.holds(payload):
        data = payload.tobytes()  # decrypted; a copy of a page alone would lose what belongs to the document
        for index in range(payload.page_count):
            document = type(payload)(stream=data, filetype="pdf")
            document.select([index])
            yield document


def copies(payload: Any) -> Iterator[Any]:
    """Yields the payload any number of times, for steps that use it up."""
    return payload.copies() if isinstance(payload, Raster) else repeat(payload)


def _check_sides(raster: Raster, target: TargetCapabilities, max_side: int) -> None:
    """Raises InvalidOption if a side that the request asks for is too long for the target, TooLarge for another one."""
    for size in raster.sizes:
        if raster.resized and max(size) > max_side:
            raise InvalidOption(
                f"The target format allows {max_side} pixels per side; the result would have {size[0]} x {size[1]}.",
                reason="out_of_range",
                param="width" if size[0] > max_side else "height",
                details={"max": max_side},
            )
        check_side(target.stored_size(size), max_side)


def _convert_frame(frame: Frame, target: TargetCapabilities, raster: Raster, depth: int) -> Frame:
    if target.max_side:
        check_side(target.stored_size(frame.size), target.max_side)
    if raster.background:
        frame = _on_background(frame, raster.background)
    pixels = frame.pixels
    if depth > 8 and isinstance(pixels, DeepPixels):
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        held = pixels.mode in target.deep_modes and (target.icc or profile is None)
        if not held and (profile or pixels.mode != "CMYK"):
            gray = "RGB" not in target.deep_modes
            array, mode = color.deep_reduced(pixels.array, pixels.mode, profile, gray=gray)
            pixels, profile, held = DeepPixels(array, mode), None, mode in target.deep_modes
        if held:
            return replace(frame, pixels=pixels, icc_profile=profile)
        FidelityWarning.issue("depth_reduced", "The target supports 8 bits per sample for these colors.")
    widen = depth > 8 and raster.bit_depth is not None
    image, profile = color.convert_for(
        frame.image,
        frame.icc_profile,
        target.deep_modes if widen else target.modes,
        keep_profile=target.icc,
    )
    return replace(frame, pixels=DeepPixels.from_image(image) if widen else image, icc_profile=profile)


def _on_background(frame: Frame, background: tuple[int, int, int, int]) -> Frame:
    """The frame laid on a color in sRGB with alpha. It has no alpha if it or the color is opaque."""
    pixels = frame.pixels
    if isinstance(pixels, DeepPixels):
        profile = color.matching_profile(pixels.mode, frame.icc_profile)
        array, mode, profile = color.deep_on_background(pixels.array, pixels.mode, profile, background)
        return replace(frame, pixels=DeepPixels(array, mode), icc_profile=profile)
    image = color.standard_mode(pixels)
    image, profile = color.on_background(image, color.matching_profile(image.mode, frame.icc_profile), background)
    return replace(frame, pixels=image, icc_profile=profile)


def _tone_map(pixels: Image.Image | DeepPixels, hdr: HdrColors) -> Image.Image | DeepPixels:
    """Pixels of HDR in sRGB: RGB, or RGBA if they have alpha."""
    import numpy as np

    if isinstance(pixels, DeepPixels):
        array = pixels.array if pixels.array.ndim == 3 else pixels.array[..., None]
        bands = {1: [0, 0, 0], 2: [0, 0, 0, 1], 3: [0, 1, 2], 4: [0, 1, 2, 3]}[array.shape[2]]
        return DeepPixels(hdr.to_srgb(array[..., bands]), "RGBA" if len(bands) == 4 else "RGB")
    image = color.standard_mode(pixels)
    image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    return Image.fromarray(hdr.to_srgb(np.asarray(image)))
