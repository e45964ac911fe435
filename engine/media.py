"""In-memory formats shared by all plugins: RASTER (decoded images) and DOCUMENT (an open document)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, repeat, tee
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from PIL import Image

from engine.capabilities import TargetCapabilities
from engine.conversions import FidelityWarning
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, Size, check_count, check_side, limit_images
from engine.errors import InvalidOption
from engine.formats import FileFormat, Format
from engine.frames import Background, Frame, convert_frame, to_linear_light, tone_map
from engine.gain_map import GainMap, without_gain_map
from engine.hdr import LINEAR, HdrColors
from engine.origin import Origin

if TYPE_CHECKING:
    from pymupdf import Document

Image.MAX_IMAGE_PIXELS = MAX_PIXELS // 2  # Pillow raises above twice this number

_BITS_OF_HALF = 10  # Floats of 16 bits hold the linear light of sRGB samples with this number of bits.

DOCUMENT: Format[Document] = Format("document", "pymupdf.Document", lazy=True)


@dataclass(frozen=True)
class ImageMetadata:
    """What files say about an image, besides its resolution and colors.

    `exif` starts with "Exif\\0\\0" and describes upright pixels; `xmp` is the XMP packet, `iptc` are the datasets of
    IPTC-IIM, `text` are comments and texts with their keywords. `adapt` returns a raster with what a target holds of
    its metadata, and warns of losses.
    """

    exif: bytes | None = None
    xmp: bytes | None = None
    iptc: bytes | None = None
    text: tuple[tuple[str, str], ...] = ()
    adapt: Callable[[Raster, TargetCapabilities], Raster] | None = None


@dataclass(frozen=True)
class ImageSource:
    """What is known of the file from which an image was decoded.

    `lossy`: the pixels come from a lossy codec. `developed`: they are developed from sensor data, for which fewer bits
    are no loss. `scalable`: they are drawn from vectors, at the size requested. `turned`: the decoder has turned them
    upright. `palette`: the file has a palette for them. `bare`: the file is known to have no metadata but profile,
    resolution and timing. `bit_depth` is the number of bits per sample of an image with deep frames, or of gray with
    fewer than 8; above 16, the deep frames issue a FidelityWarning where they lose some.
    """

    lossy: bool = False
    developed: bool = False
    scalable: bool = False
    turned: bool = False
    palette: bool = False
    bare: bool = False
    bit_depth: int = 16


@dataclass(frozen=True)
class ImageRequest:
    """What options have determined for later steps.

    `resized`: the sizes. `placed`: the option `gravity` has placed a crop. `background` (red, green, blue, alpha) is
    the color to lay under the frames.
    """

    resized: bool = False
    placed: bool = False
    background: Background | None = None


@dataclass
class Raster:
    """Decoded frames with their metadata. Frames are decoded lazily, one at a time.

    `frames` yields frames with 8 bits per sample. `deep_frames`, if the source has a higher depth, yields the same
    frames with 16. A consumer iterates over one of the two, once.
    `sizes` are the frame sizes from the file's headers, so that limits are checked before decoding; `drawn_sizes`
    are the sizes to which the decoder scales them, and `decoded_sizes` the sizes of the frames decoded so far.
    `animated` distinguishes an animation from pages. `loop_count` is how often an animation plays; 0: forever.
    `dpi` is (horizontal, vertical). `bit_depth` is the requested number of bits per sample. `hdr` is what the samples
    mean if they are of high dynamic range or linear light; frames then have no profile. `gain_map` adds it to a single
    one. `redraw` returns the whole image of vectors, drawn with a longer side of so many pixels. `sample` is a frame of
    one transparent pixel with the mode, depth and profile of the frames, if the header states them. `origin` is the
    file of one image from which it was decoded, for encoders of its format. `order` has the indexes of the pages that
    are drawn next, and can be changed; it is empty if pages have to be read one after the other.
    """

    frames: Iterable[Frame]
    count: int = 1
    deep_frames: Iterable[Frame] | None = None
    animated: bool = False
    loop_count: int = 0
    metadata: ImageMetadata = ImageMetadata()
    source: ImageSource = ImageSource()
    request: ImageRequest = ImageRequest()
    dpi: tuple[float, float] | None = None
    bit_depth: int | None = None
    hdr: HdrColors | None = None
    gain_map: GainMap | None = None
    redraw: Callable[[int], Frame] | None = None
    sample: Frame | None = None
    origin: Origin | None = None
    order: list[int] = field(default_factory=list)
    sizes: Sequence[Size] = ()
    drawn_sizes: Sequence[Size] = ()
    decoded_sizes: list[Size] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.frames = limit_images(self.frames, self.decoded_sizes, self.kind)
        if self.deep_frames is not None:
            self.deep_frames = limit_images(self.deep_frames, self.decoded_sizes, self.kind)

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
        raster = raster if raster.metadata.adapt is None else raster.metadata.adapt(raster, target)
        target = target.for_animation() if raster.animated and target.animation_modes else target
        depth = self._bit_depth_for(target)
        is_linear = raster.hdr is not None and raster.hdr.transfer == LINEAR
        few_bits = depth == 8 and raster.deep_frames is not None  # would show bands
        keeps_hdr = target.linear or (target.hdr and not is_linear and not few_bits)
        opaque = raster.sample is not None and raster.sample.pixels.mode in ("L", "RGB")
        raster = raster if target.gain_map else without_gain_map(raster)
        if (raster.hdr and not keeps_hdr) or (raster.request.background and not opaque):  # the background is in sRGB
            raster = raster.tone_mapped()
        check_count(raster.count, raster.sizes, self.kind)
        if target.max_side:
            _check_sides(raster, target, target.max_side)
        shallow = raster.deep_frames is None or (depth == 8 and not target.linear)
        frames = raster.frames if shallow or raster.deep_frames is None else raster.deep_frames
        if target.linear:
            convert = partial(to_linear_light, target=target, colors=raster.hdr)
        else:
            convert = partial(
                convert_frame, target=target, depth=depth, widen=depth > 8 and raster.bit_depth is not None
            )
        converted = (convert(frame, background=raster.request.background) for frame in frames)
        return replace(raster, frames=converted, deep_frames=None, bit_depth=depth)

    def tone_mapped(self) -> Raster:
        """The raster in sRGB if it has high dynamic range, with a FidelityWarning for what is reduced."""
        hdr = self.hdr
        if hdr is None:
            return without_gain_map(self)
        if hdr.transfer != LINEAR:
            FidelityWarning.issue("hdr_reduced", "High dynamic range was reduced to the range of sRGB.")
        mapped = replace(self.map(lambda frame: replace(frame, pixels=tone_map(frame.pixels, hdr))), hdr=None)
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
            redraw=None,
            origin=self.origin and self.origin.changed(),
            gain_map=self.gain_map and self.gain_map.map(convert),
        )

    def read_ahead(self, count: int | None = None) -> tuple[list[Frame], Raster]:
        """The first `count` frames, by default all, in their full depth, and the raster with all of its frames.

        For changes that depend on the pixels. The frames stay in memory until they are read again.
        """
        rest = iter(self.frames if self.deep_frames is None else self.deep_frames)
        read = list(islice(rest, count))
        if self.deep_frames is None:
            return read, replace(self, frames=chain(read, rest))
        deep = chain(read, rest)
        return read, replace(self, frames=(replace(frame, pixels=frame.image) for frame in deep), deep_frames=deep)

    def dry_run(self, target: TargetCapabilities, max_pixels: int) -> None:
        """Issues the warnings and raises the errors of `converted_for`, as far as the header proves them.

        If they depend on the pixels, as transparency does, images of up to `max_pixels` are decoded to find out.
        """
        with catch_warnings(record=True) as caught:
            simplefilter("always")
            sample = self.sample and replace(self.sample, full_size=None)
            stand_in = replace(self, frames=[sample] if sample else [], deep_frames=None)
            if self.deep_frames is not None:
                stand_in.deep_frames = stand_in.frames
            list(stand_in.converted_for(target).frames)
        warned = [one.message for one in caught if isinstance(one.message, FidelityWarning)]
        proven = [one for one in warned if not one.code.startswith("alpha_")]
        depends_on_pixels = sample is None or self.source.bit_depth > 16 or proven != warned
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

    def page(self, index: int) -> Raster:
        """A page of a raster with an `order` as a raster of its own, which must be used before the next one."""
        self.order[:] = [index]
        return self._next_frame(self.sizes[index : index + 1])

    def copies(self) -> Iterator[Raster]:
        """Yields the raster any number of times. Its frames are decoded once and stay in memory."""
        frames = self.frames
        deep_frames = self.deep_frames
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
        source = 8 if self.deep_frames is None else min(self.source.bit_depth, 16)
        if target.linear:
            source = _bits_of_light(source, self.source.bit_depth, self.hdr)
        depth = next((bits for bits in available if bits >= source), available[-1])
        if depth < source and not self.source.developed:
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
class Images:
    """The number of images or pages of a payload or file, and the size of the first one in pixels.

    Vectors and documents have no size, and neither has an image whose header does not state it.
    """

    count: int
    size: Size | None = None


def images(payload: Any) -> Images | None:
    """The images of a payload in memory; None for other payloads."""
    if isinstance(payload, Raster):
        return Images(payload.count, payload.sizes[0] if payload.sizes and not payload.source.scalable else None)
    return Images(payload.page_count) if DOCUMENT.holds(payload) else None


def _bits_of_light(bits: int, source: int, colors: HdrColors | None) -> int:
    """The bits per sample of floats that hold the linear light of samples of `bits`: 16 or 32."""
    if colors is not None and colors.transfer == LINEAR:
        return source
    return 32 if bits > _BITS_OF_HALF else bits


def files_needed(payload: Any, target: FileFormat) -> int:
    """The number of files of the format `target` that hold all images or pages of the payload."""
    found = images(payload)
    animation = isinstance(payload, Raster) and payload.animated
    return 1 if found is None or target.paged or (animation and target.animated) else found.count


def split(payload: Any) -> Iterator[Any]:
    """Yields each image or page as a payload of its own, which must be used before the next one."""
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


def drawn_for(payload: Any, target: TargetCapabilities | None) -> Any:
    """The payload, drawn larger for a target that has larger drawings, unless an option determines its size."""
    if not isinstance(payload, Raster) or payload.redraw is None or target is None or target.drawn_side is None:
        return payload
    if max(payload.sizes[0]) >= target.drawn_side:
        return payload
    frame = payload.redraw(target.drawn_side)
    return replace(payload, frames=[frame], sizes=[frame.size], drawn_sizes=(), origin=None, redraw=None)


def _check_sides(raster: Raster, target: TargetCapabilities, max_side: int) -> None:
    """Raises InvalidOption if a side that the request asks for is too long for the target, TooLarge for another one."""
    for size in raster.sizes:
        if raster.request.resized and max(size) > max_side:
            raise InvalidOption(
                f"The target format allows {max_side} pixels per side; the result would have {size[0]} x {size[1]}.",
                reason="out_of_range",
                param="width" if size[0] > max_side else "height",
                details={"max": max_side},
            )
        check_side(target.stored_size(size), max_side)
