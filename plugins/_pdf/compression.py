"""Makes PDF files smaller: pictures are reduced and compressed, equal streams merged, fonts subset."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from typing import Any

import numpy as np
import pikepdf
from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream
from PIL import Image

from engine import MAX_PIXELS
from engine.mupdf import pymupdf
from plugins import _pillow
from plugins._pdf.documents import open_document, save_document
from plugins._pdf.drawn_sizes import drawn_sizes
from plugins._pdf.form_fields import remove_signatures
from plugins._pdf.name_trees import as_list

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
_SPACES = {"L": Name.DeviceGray, "RGB": Name.DeviceRGB, "CMYK": Name.DeviceCMYK}
_DEVICES = {"/DeviceGray": 1, "/CalGray": 1, "/G": 1, "/DeviceRGB": 3, "/CalRGB": 3, "/RGB": 3, "/DeviceCMYK": 4}
_DESCRIPTOR = Name.FontDescriptor
_SUBSET = re.compile(r"/[A-Z]{6}\+")
_EXCESS = 1.5  # times the requested resolution, above which pictures are reduced
_SMALL = 64  # pixels per side, below which pictures stay
_MAX_COLORS = 256
_GAIN = 0.95  # of the size, which a lossy file must not exceed to replace another one
_ROUNDS = 2  # in which equal streams are merged: those that refer to merged ones can become equal


class Compressor:
    """A file that is compressed once or several times. `pages` is its number of pages. Raises UnknownFormat."""

    def __init__(self, data: bytes, password: str | None, color_space: str, *, linearize: bool, sanitize: bool) -> None:
        self._data = data
        self._password = password
        self._color_space = color_space
        self._parameters = {"linearize": linearize, "recompress_flate": True}
        self._sanitize = sanitize
        with open_document(data, password) as document:
            self.pages = len(document.pages)
            self._sizes = drawn_sizes(document)

    def compress(self, dpi: int, quality: int) -> bytes:
        """The file with pictures of this resolution and JPEG quality."""
        document = open_document(self._data, self._password)
        remove_signatures(document)
        with pymupdf.open(stream=self._data, filetype="pdf") as shown:
            shown.authenticate(self._password or "")
            for picture in _pictures(document):
                self._reduce(picture, shown, dpi, quality)
        for _ in range(_ROUNDS):
            _merge_equal_streams(document)
        document = self._with_subset_fonts(document)
        document.remove_unreferenced_resources()
        return save_document(document, sanitize=self._sanitize, **self._parameters)

    def _reduce(self, picture: Stream, shown: pymupdf.Document, dpi: int, quality: int) -> None:
        """Replaces the data of a picture if others are smaller, and those of its soft mask."""
        factor = self._factor(picture, dpi)
        mask = picture.get("/SMask")
        image = _decode(picture, shown)
        if image is None or isinstance(picture.get("/Mask"), Array) or (mask is not None and "/Matte" in mask):
            return
        if image.mode == "1":
            _replace(picture, image, _bilevel(image))
            return
        original = image.mode
        if self._color_space != "keep":
            image = image.convert("L" if self._color_space == "gray" else "RGB")
        elif image.mode == "RGB" and _is_gray(image) and _is_device(picture):
            image = image.getchannel(0)
        image = _resized(image, factor)
        if isinstance(mask, Stream) and factor < 1 and (alpha := _decode(mask, shown)) is not None:
            alpha = _resized(alpha.convert("L"), factor)
            _replace(mask, alpha, ("/FlateDecode", zlib.compress(alpha.tobytes(), 9), None))
        must_change = image.mode != original and self._color_space != "keep"
        _replace(picture, image, *_encodings(image, quality), recolored=image.mode != original, required=must_change)

    def _factor(self, picture: Stream, dpi: int) -> float:
        """By which a picture is scaled down; 1 if its size on the pages is unknown."""
        drawn = self._sizes.get(picture.objgen)
        if drawn is None or min(drawn) <= 0:
            return 1.0
        resolution = min(int(picture.Width) * 72 / drawn[0], int(picture.Height) * 72 / drawn[1])
        return dpi / resolution if resolution > dpi * _EXCESS else 1.0

    def _with_subset_fonts(self, document: Pdf) -> Pdf:
        """The document with fonts that have only the glyphs that are used, unless a form needs others.

        Fonts that are subsets already stay, because MuPDF removes hints, which viewers need at small sizes.
        """
        if "/AcroForm" in document.Root or not _has_whole_fonts(document):
            return document
        file = BytesIO()
        document.save(file, encryption=document.is_encrypted)
        with pymupdf.open(stream=file.getvalue(), filetype="pdf") as written:
            written.authenticate(self._password or "")
            with suppress(RuntimeError, ValueError):
                written.subset_fonts()
                data = written.tobytes(encryption=pymupdf.PDF_ENCRYPT_KEEP)
                return open_document(data, self._password)
        return document


def _has_whole_fonts(document: Pdf) -> bool:
    """Whether a font is embedded with all of its glyphs: the name of a subset begins with a tag."""
    fonts = (item for item in document.objects if isinstance(item, Dictionary) and item.get("/Type") == _DESCRIPTOR)
    embedded = (font for font in fonts if {"/FontFile", "/FontFile2", "/FontFile3"} & set(font.keys()))
    return any(_SUBSET.match(str(font.get("/FontName", ""))) is None for font in embedded)


def _pictures(document: Pdf) -> list[Stream]:
    """All pictures but masks."""
    found = [item for item in document.objects if isinstance(item, Stream) and item.get("/Subtype") == Name.Image]
    masks = {mask.objgen for item in found for key in ("/SMask", "/Mask") if isinstance(mask := item.get(key), Stream)}
    return [item for item in found if item.objgen not in masks]


def _decode(picture: Stream, shown: pymupdf.Document) -> Image.Image | None:
    """The picture with its samples. None if it is small, large, damaged or in a color space that JPEG lacks."""
    width, height = picture.get("/Width"), picture.get("/Height")
    if not isinstance(width, int) or not isinstance(height, int) or not _SMALL**2 < width * height <= MAX_PIXELS:
        return None
    is_bilevel = picture.get("/ImageMask") or (picture.get("/BitsPerComponent") == 1 and _bands(picture) == 1)
    if not is_bilevel and "/JPXDecode" not in map(str, as_list(picture.get("/Filter"))) and not _bands(picture):
        return None
    pymupdf.TOOLS.reset_mupdf_warnings()
    try:
        pixels = pymupdf.Pixmap(shown, picture.objgen[0])
    except (RuntimeError, ValueError):
        return None
    if pymupdf.TOOLS.mupdf_warnings():
        return None
    if is_bilevel:
        if picture.get("/ImageMask") or pixels.n != 1:
            return None
        image = Image.frombytes("L", (pixels.width, pixels.height), pixels.samples_mv)
        return image.convert("1", dither=Image.Dither.NONE)
    if pixels.alpha or pixels.n not in _MODES:
        return None
    return Image.frombytes(_MODES[pixels.n], (pixels.width, pixels.height), pixels.samples_mv)


def _bands(picture: Stream) -> int | None:
    """The bands of a color space that JPEG has; of the colors of a palette."""
    space = picture.get("/ColorSpace")
    if isinstance(space, Array) and len(space) > 1:
        if space[0] == Name.ICCBased and isinstance(space[1], Stream):
            return int(space[1].get("/N", 0)) or None
        if space[0] in (Name.Indexed, Name.I):
            return _bands(Dictionary(ColorSpace=space[1]))  # type: ignore[arg-type]
        return _DEVICES.get(str(space[0]))
    return _DEVICES.get(str(space))


def _is_device(picture: Stream) -> bool:
    """Whether the colors of a picture have no profile, which gray would lose."""
    space = picture.get("/ColorSpace")
    return isinstance(space, Name)


def _is_gray(image: Image.Image) -> bool:
    red, green, blue = image.split()
    return red.tobytes() == green.tobytes() == blue.tobytes()


def _resized(image: Image.Image, factor: float) -> Image.Image:
    size = max(1, round(image.width * factor)), max(1, round(image.height * factor))
    return image if factor >= 1 or size == image.size else image.resize(size, Image.Resampling.LANCZOS)


Encoding = tuple[str, bytes, Any]
"""The filter, the data and the parameters of a stream."""


def _bilevel(image: Image.Image) -> Encoding:
    from plugins import _tifffile

    group4, data = _tifffile.compress_bilevel(image)
    if not group4:
        return "/FlateDecode", zlib.compress(image.tobytes(), 9), None
    parameters = Dictionary(K=-1, Columns=image.width, Rows=image.height, BlackIs1=False)
    return "/CCITTFaxDecode", data, parameters


def _encodings(image: Image.Image, quality: int) -> Iterable[Encoding]:
    """As JPEG; also without loss if there are few colors, as in drawings."""
    yield "/DCTDecode", _pillow.encode_jpeg(image, quality=quality), None
    if image.mode == "CMYK" or image.getcolors(_MAX_COLORS) is None:
        return
    if image.mode == "L":
        yield "/FlateDecode", zlib.compress(image.tobytes(), 9), None
        return
    packed = np.asarray(image).astype(np.uint32) @ np.array([1 << 16, 1 << 8, 1], np.uint32)
    colors, indexes = np.unique(packed, return_inverse=True)
    palette = b"".join(int(color).to_bytes(3, "big") for color in colors)
    yield "/FlateDecode", zlib.compress(indexes.astype(np.uint8).tobytes(), 9), palette


def _replace(
    picture: Stream, image: Image.Image, *encodings: Encoding, recolored: bool = False, required: bool = False
) -> None:
    """Replaces the data of a picture by the smallest ones, if these are smaller or `required`."""
    kind, data, more = min(encodings, key=lambda encoding: len(encoding[1]) + len(encoding[2] or b""))
    limit = len(picture.read_raw_bytes())
    if len(data) >= (limit * _GAIN if kind == "/DCTDecode" else limit) and not required:
        return
    base: Any = picture.get("/ColorSpace")
    if isinstance(base, Array) and len(base) > 1 and base[0] == Name.Indexed:
        base = base[1]
    parameters = more if isinstance(more, Dictionary) else None
    picture.write(data, filter=Name(kind), decode_parms=parameters)
    picture.Width, picture.Height = image.size
    picture.BitsPerComponent = 1 if image.mode == "1" else 8
    for key in {"/Decode", "/Intent"} & set(picture.keys()):
        del picture[key]
    if image.mode == "CMYK" and kind == "/DCTDecode":
        picture.Decode = Array([1, 0] * 4)  # as Pillow stores it
    if image.mode == "1":
        return
    if recolored or base is None:
        base = _SPACES[image.mode]
    picture.ColorSpace = base
    if isinstance(more, bytes):
        picture.ColorSpace = Array([Name.Indexed, base, len(more) // 3 - 1, pikepdf.String(more)])


def _merge_equal_streams(document: Pdf) -> None:
    """Lets all references to streams with the same entries and data lead to one of them."""
    first: dict[bytes, Object] = {}
    merged: dict[tuple[int, int], Object] = {}
    for item in document.objects:
        if isinstance(item, Stream) and item.get("/Type") != Name.ObjStm:
            entries = sorted((key, _described(value)) for key, value in item.items() if key != "/Length")
            digest = hashlib.blake2b(repr(entries).encode() + item.read_raw_bytes()).digest()
            if digest in first:
                merged[item.objgen] = first[digest]
            else:
                first[digest] = item
    if not merged:
        return
    pending: list[Any] = [item for item in document.objects if isinstance(item, Dictionary | Stream | Array)]
    while pending:
        holder = pending.pop()
        for key, value in list(enumerate(holder) if isinstance(holder, Array) else holder.items()):
            if isinstance(value, Stream) and value.objgen in merged:
                holder[key] = merged[value.objgen]
            elif isinstance(value, Dictionary | Array) and not value.is_indirect:
                pending.append(value)


def _described(value: Any) -> bytes | str:
    return value.unparse() if isinstance(value, Object) else repr(value)
