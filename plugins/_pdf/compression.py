"""Makes PDF files smaller: without loss first, and then their images with loss."""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from itertools import product
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, Object, Pdf, PdfError, Stream
from PIL import Image, ImageChops

from engine import FidelityWarning, color
from plugins._color import profiles
from plugins._pdf import archive_claims, flate
from plugins._pdf.images.recompression import ImageSettings, recompress
from plugins._pdf.name_trees import as_list
from plugins._pdf.objects import open_pdf, remove_private_data, saved, stored_length, walk
from plugins._pdf.resources import UsedResources
from plugins._pdf.text.fonts import convert_type1, name_descriptors, subset_fonts


def compress(data: bytes, password: str, quality: int, dpi: int) -> bytes:
    """The file, as small as possible with images of a quality from 1 to 100 and a resolution.

    Issues a warning if it has no images that can be stored as JPEG.
    """
    with open_pdf(data, password) as document:
        compressed, count = optimize(document, password, ImageSettings.of(quality, dpi))
    if not count:
        FidelityWarning.issue("quality_ignored", "The PDF has no images that can be stored as JPEG.")
    return compressed


def with_images(data: bytes, password: str, settings: ImageSettings, *, linearize: bool = False) -> tuple[bytes, int]:
    """The file with compressed images, and the number of images that can be stored as JPEG."""
    with open_pdf(data, password) as document:
        count = recompress(document, settings, data, password)
        return _saved(document, linearize=linearize), count


def _saved(document: Pdf, **parameters: Any) -> bytes:
    """As `saved`, without bytes that only PDF/A needs if the document is none."""
    return saved(document, preserve_pdfa=bool(archive_claims.claim_of(document)), **parameters)


def optimize(
    document: Pdf, password: str, settings: ImageSettings | None = None, *, linearize: bool = False
) -> tuple[bytes, int]:
    """The document with only what it uses, once, in the best compression without loss. Changes `document`.

    With `settings`, images are compressed, too, in less memory than by a call of `with_images` for the result. Returns
    the file, and the number of images that can be stored as JPEG; 0 without `settings`.
    """
    remove_private_data(document)
    pages = [page.obj for page in document.pages]
    resources = UsedResources(pages)
    for page in pages:
        resources.keep(page)
    _join_contents(document)
    _shorten_profiles(document)
    merge_duplicates(document)
    name_descriptors(document)
    convert_type1(document)
    data = saved(document)
    with open_pdf(data, password) as smaller:
        subset_fonts(smaller, data, password)
        for item in smaller.objects:
            if isinstance(item, Stream) and item.get("/Subtype") != Name.Image:
                flate.recompress(item)
        count = recompress(smaller, settings, data, password) if settings else 0
        return _saved(smaller, linearize=linearize), count


def _join_contents(document: Pdf) -> None:
    """Joins the parts of each page's content that no other page has. Parts that are damaged stay."""
    contents = [as_list(page.obj.get("/Contents")) for page in document.pages]
    used = Counter(part.objgen for parts in contents for part in parts if isinstance(part, Stream))
    for page, parts in zip(document.pages, contents, strict=True):
        if len(parts) > 1 and all(isinstance(part, Stream) and used[part.objgen] == 1 for part in parts):
            try:
                joined = b"\n".join(part.read_bytes() for part in parts)
            except PdfError:
                continue
            page.obj.Contents = document.make_stream(joined)


_MAX_PROFILE = 1 << 16  # bytes; those of sRGB have 4,000, and without tables 500
_PROFILE_MARK = slice(36, 40)
_STEP = 15  # levels between the colors that are compared


def _shorten_profiles(document: Pdf) -> None:
    """Replaces profiles with the colors of sRGB by a short one, which PDF/A-1 does not allow."""
    if archive_claims.claim_of(document).get(b"part") == b"1":
        return
    short = profiles.named("srgb").data
    for item in document.objects:
        if isinstance(item, Stream) and item.get("/N") == 3 and len(item.read_raw_bytes()) <= _MAX_PROFILE:
            try:
                profile = item.read_bytes()
            except PdfError:
                continue
            if len(profile) > len(short) and _is_srgb(profile):
                item.write(short)


def _is_srgb(profile: bytes) -> bool:
    if profile[_PROFILE_MARK] != b"acsp" or color.matching_profile("RGB", profile) is None:
        return False
    levels = range(0, 256, _STEP)
    colors = Image.frombytes("RGB", (len(levels) ** 2, len(levels)), bytes(sum(product(levels, repeat=3), ())))
    return max(ImageChops.difference(colors, color.to_srgb(colors, profile)).tobytes()) <= 1


_Id: TypeAlias = tuple[int, int]

# Others, such as pages, annotations, layers and elements of the structure, are different even with equal contents.
_MERGED_TYPES = {None, "/Font", "/FontDescriptor", "/Encoding", "/ExtGState", "/Pattern", "/CIDFont"}
_IDENTIFYING_KEYS = {
    "/Parent", "/P", "/Kids", "/T", "/FT", "/Next", "/Prev", "/First", "/Last", "/StructParents", "/Rect", "/S",
}  # fmt: skip
_MAX_ROUNDS = 8  # Fonts are equal when their descriptors and files are.


def merge_duplicates(document: Pdf) -> None:
    """Replaces references to equal streams and resources by references to the first of them.

    The time is linear in the size of the document, for each level of references between merged objects.
    """
    streams = [item for item in document.objects if isinstance(item, Stream)]
    lengths = Counter(map(stored_length, streams))
    # Streams of another length than all others need not be read.
    unique = (stream.objgen for stream in streams if lengths[stored_length(stream)] == 1)
    digests: dict[_Id, bytes] = {number: repr(number).encode() for number in unique}
    for _ in range(_MAX_ROUNDS):
        first: dict[bytes, Object] = {}
        merged: dict[_Id, Object] = {}
        for item in document.objects:
            if not _is_mergeable(item):
                continue
            kept = first.setdefault(_key(item, digests), item)
            if kept.objgen != item.objgen:
                merged[item.objgen] = kept
        if not merged or not _replace_references(document, merged):
            return


def _is_mergeable(item: Any) -> bool:
    if isinstance(item, Stream):
        return "/StructParent" not in item and "/StructParents" not in item and item.get("/Type") != Name.ObjStm
    if isinstance(item, Array):
        return len(item) > 1 and isinstance(item[0], Name)  # a color space
    if isinstance(item, Dictionary):
        kind = item.get("/Type")
        return (None if kind is None else str(kind)) in _MERGED_TYPES and not _IDENTIFYING_KEYS & set(item.keys())
    return False


def _key(item: Any, digests: dict[_Id, bytes]) -> bytes:
    """Equal for objects with equal content."""
    if not isinstance(item, Stream):
        return bytes(item.unparse(resolved=True))
    if item.objgen not in digests:
        digests[item.objgen] = sha256(item.get_raw_stream_buffer()).digest()
    entries = {key: value for key, value in item.items() if key != "/Length"}
    return digests[item.objgen] + bytes(Dictionary(entries).unparse())


def _replace_references(document: Pdf, merged: dict[_Id, Object]) -> bool:
    """Replaces references to merged objects. Returns whether there were any."""
    found = False
    for holder, key, value in walk(document):
        if value.is_indirect and (kept := merged.get(value.objgen)) is not None:
            holder[key] = kept
            found = True
    return found
