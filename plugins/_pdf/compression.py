"""Makes PDF files smaller: without loss first, and then their images with loss."""

from __future__ import annotations

from hashlib import sha256
from typing import Any, TypeAlias

from pikepdf import Array, Dictionary, Name, Object, Pdf, Stream

from engine import FidelityWarning
from plugins._pdf import flate
from plugins._pdf.images.recompression import ImageSettings, recompress
from plugins._pdf.objects import open_pdf, remove_private_data, saved, walk
from plugins._pdf.resources import UsedResources
from plugins._pdf.text.fonts import convert_type1, name_descriptors, subset_fonts


def compress(data: bytes, password: str, quality: int, dpi: int) -> bytes:
    """The file, as small as possible with images of a quality from 1 to 100 and a resolution.

    Issues a warning if it has no images that can be stored as JPEG.
    """
    with open_pdf(data, password) as document:
        optimized = optimize(document, password)
    compressed, count = with_images(optimized, password, ImageSettings.of(quality, dpi))
    if not count:
        FidelityWarning.issue("quality_ignored", "The PDF has no images that can be stored as JPEG.")
    return compressed


def with_images(data: bytes, password: str, settings: ImageSettings, *, linearize: bool = False) -> tuple[bytes, int]:
    """The file with compressed images, and the number of images that can be stored as JPEG."""
    with open_pdf(data, password) as document:
        count = recompress(document, settings)
        return saved(document, linearize=linearize), count


def optimize(document: Pdf, password: str) -> bytes:
    """The document with only what it uses, once, in the best compression without loss. Changes `document`.

    Images stay as they are, because `recompression` compresses them.
    """
    remove_private_data(document)
    pages = [page.obj for page in document.pages]
    resources = UsedResources(pages)
    for page in pages:
        resources.keep(page)
    merge_duplicates(document)
    name_descriptors(document)
    convert_type1(document)
    data = saved(document)
    with open_pdf(data, password) as smaller:
        subset_fonts(smaller, data, password)
        for item in smaller.objects:
            if isinstance(item, Stream) and item.get("/Subtype") != Name.Image:
                flate.recompress(item)
        return saved(smaller)


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
    digests: dict[_Id, bytes] = {}
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
