"""The containers of camera RAW: how each is detected, whether it is complete, and its metadata."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from engine import Content, FileFormat, Signature, Sniffer, any_of
from plugins._boxes import heif
from plugins._metadata import exif_data
from plugins._pixels import pillow
from plugins._tiff import tiff_directories

_SCANNER = b"NIKON"  # the maker whose film scanners write RAW files
_TIFF = (b"II*\0", b"MM\0*")
_FUJI = b"FUJIFILM"
_MINOLTA = b"\0MRM"
_CANON_UUID, _XMP_UUID = (
    bytes.fromhex(text) for text in ("85c0b687820f11e08111f4ce462b6a48", "be7acfcb97a942e89c71999491e3afac")
)
_UUID_SIZE = 16
_PACKED = 0x59
_INTEROPERABILITY = 0xA005


class _Camera(NamedTuple):
    """A container that is a TIFF file with sensor data: the maker's name, and how its models' names begin."""

    name: str
    media_type: str
    make: bytes
    models: tuple[bytes, ...] = (b"",)


_CAMERAS = (
    _Camera("nef", "image/x-nikon-nef", _SCANNER),
    _Camera("nrw", "image/x-nikon-nrw", b"NIKON", (b"COOLPIX",)),
    _Camera("arw", "image/x-sony-arw", b"SONY"),
    _Camera("sr2", "image/x-sony-sr2", b"SONY", (b"DSC-R1",)),
    _Camera("pef", "image/x-pentax-pef", b"PENTAX"),
    _Camera("pef", "image/x-pentax-pef", b"RICOH"),
    _Camera("srw", "image/x-samsung-srw", b"SAMSUNG"),
    _Camera("3fr", "image/x-hasselblad-3fr", b"HASSELBLAD"),
    _Camera("erf", "image/x-epson-erf", b"SEIKO EPSON"),
    _Camera("mef", "image/x-mamiya-mef", b"MAMIYA"),
    _Camera("mos", "image/x-leaf-mos", b"LEAF"),
    _Camera("dcr", "image/x-kodak-dcr", b"KODAK"),
    _Camera("kdc", "image/x-kodak-kdc", b"EASTMAN KODAK"),
)


def _is_dng(directories: list[tiff_directories.Directory]) -> bool:
    return any(tiff_directories.DNG_VERSION in directory for directory in directories[:1])


def _sniff_dng(content: Content) -> int:
    return 16 if _is_dng(tiff_directories.sniffed(content)) else 0


def _by_maker(camera: _Camera) -> Sniffer:
    """A sniffer for TIFF files of a camera with sensor data; the longer name of two matching ones wins."""

    def sniff(content: Content) -> int:
        directories = tiff_directories.sniffed(content)
        make, model = tiff_directories.camera_make(directories), tiff_directories.camera_model(directories)
        if _is_dng(directories) or not make.startswith(camera.make) or not model.startswith(camera.models):
            return 0
        holds_raw = tiff_directories.holds_sensor_data(directories) or (
            camera.make == _SCANNER and is_scan(directories)
        )
        return 4 + len(camera.make) + min(map(len, camera.models)) if holds_raw else 0

    return _in_tiff(sniff)


def _in_tiff(sniff: Sniffer) -> Sniffer:
    return any_of(*(Signature((0, magic), then=sniff) for magic in _TIFF))


def _sniff_leica(content: Content) -> int:
    make = tiff_directories.camera_make(tiff_directories.sniffed(content))
    return 4 + len(make) if make.startswith(b"LEICA") else 0


def is_scan(directories: list[tiff_directories.Directory]) -> bool:
    """Whether a film scanner wrote a TIFF-based file: a thumbnail, and colors in a sub-directory."""
    return (
        tiff_directories.camera_make(directories).startswith(_SCANNER)
        and not tiff_directories.holds_sensor_data(directories)
        and tiff_directories.hides_image(directories)
    )


def _formats() -> Iterator[FileFormat]:
    sniffers: dict[tuple[str, str], list[Sniffer]] = {
        ("cr2", "image/x-canon-cr2"): [Signature((0, b"II*\0"), (8, b"CR\x02"))],
        ("cr3", "image/x-canon-cr3"): [Signature((4, b"ftypcrx "))],
        ("crw", "image/x-canon-crw"): [Signature((0, b"II"), (6, b"HEAPCCDR"))],
        ("dng", "image/x-adobe-dng"): [_in_tiff(_sniff_dng)],
        ("raf", "image/x-fuji-raf"): [Signature((0, b"FUJIFILMCCD-RAW"))],
        ("orf", "image/x-olympus-orf"): [Signature((0, magic)) for magic in (b"IIRO", b"IIRS", b"MMOR")],
        ("rw2", "image/x-panasonic-rw2"): [Signature((0, b"IIU\0"))],
        ("rwl", "image/x-leica-rwl"): [Signature((0, b"IIU\0"), then=_sniff_leica)],
        ("mrw", "image/x-minolta-mrw"): [Signature((0, _MINOLTA), (8, b"\0PRD"))],
        ("iiq", "image/x-phaseone-iiq"): [Signature((0, b"II*\0"), (8, b"IIII"), (13, b"waR"))],
    }
    for camera in _CAMERAS:
        sniffers.setdefault((camera.name, camera.media_type), []).append(_by_maker(camera))
    for (name, media_type), found in sniffers.items():
        yield FileFormat(name, media_type=media_type, extensions=(name,), sniff=any_of(*found), bytes_per_pixel=0.5)


FORMATS = tuple(_formats())


def is_truncated(data: bytes) -> bool:
    """Whether sensor data lies beyond the end of the file: LibRaw decodes some truncated files to noise."""
    if data.startswith(_MINOLTA):
        return _minolta_size(data) > len(data)
    if data.startswith(_FUJI):
        offset, size = struct.unpack(">2I", data[100:108].ljust(8, b"\0"))
        return int(offset + size) > len(data)
    return tiff_directories.is_truncated(data, tiff_directories.read_directories(data, tiff_directories.MAX_PARTS))


def _minolta_size(data: bytes) -> int:
    """The size of a file of Minolta, by the rows, columns and storage of its first block."""
    values = struct.unpack(">4H3B", data[24:35].ljust(11, b"\0"))
    height, width, bits, storage = (int(values[at]) for at in (0, 1, 4, 6))
    return 8 + int.from_bytes(data[4:8], "big") + height * width * (bits if storage == _PACKED else 16) // 8


def orientation(data: bytes) -> int:
    """The orientation of files in which LibRaw does not look for it; 1 for others."""
    block = read_block(data) if data.startswith(_MINOLTA) else None
    return block.integer(exif_data.ORIENTATION) if block else 1


def read_block(data: bytes) -> exif_data.Block | None:
    """The metadata as a TIFF directory; in RAF, the preview has it. None if there is none."""
    if data.startswith(_FUJI):
        start, size = (int.from_bytes(data[offset : offset + 4], "big") for offset in (84, 88))
        return exif_data.parse(pillow.open_image(data[start : start + size], "JPEG").info.get("exif"))
    if data.startswith(_MINOLTA):
        return exif_data.parse_file(_minolta_block(data, b"\0TTW"))
    if data[4:8] == b"ftyp":
        return _canon_block(data)
    if data[6:10] == b"HEAP":
        return None
    # ORF and RW2 differ from TIFF only in the magic number.
    magic = b"\x2a\0" if data.startswith(b"II") else b"\0\x2a"
    return exif_data.parse_file(data[:2] + magic + data[4:])


def _minolta_block(data: bytes, name: bytes) -> bytes:
    start, end = 8, 8 + int.from_bytes(data[4:8], "big")
    while start + 8 <= min(end, len(data)):
        size = int.from_bytes(data[start + 4 : start + 8], "big")
        if data[start : start + 4] == name:
            return data[start + 8 : start + 8 + size]
        start += 8 + size
    return b""


def _canon_block(data: bytes) -> exif_data.Block | None:
    """The directories of CR3, which are TIFF files in boxes of their own, joined to one block."""
    parts = {
        box.kind: exif_data.parse_file(data[box.content : box.end])
        for parent in _uuid_boxes(data, _CANON_UUID, b"moov")
        for box in heif.boxes(data, parent.content + _UUID_SIZE, parent.end)
        if box.kind in (b"CMT1", b"CMT2", b"CMT4")
    }
    first = parts.get(b"CMT1")
    if first is None:
        return None
    directory = dict(first.directory)
    for tag, kind in ((exif_data.EXPOSURE, b"CMT2"), (exif_data.GPS, b"CMT4")):
        part = parts.get(kind)
        if part is not None and part.order == first.order:
            directory[tag] = {key: value for key, value in part.directory.items() if key != _INTEROPERABILITY}
    for box in _uuid_boxes(data, _XMP_UUID):
        xmp = data[box.content + _UUID_SIZE : box.end]
        directory[exif_data.XMP] = exif_data.Value(1, len(xmp), xmp)
    return replace(first, directory=directory)


def _uuid_boxes(data: bytes, uuid: bytes, *path: bytes) -> Iterator[heif.Box]:
    parent = heif.find(data, *path)
    if path and parent is None:
        return
    for box in heif.boxes(data) if parent is None else heif.children(data, parent):
        if box.kind == b"uuid" and data[box.content : box.content + _UUID_SIZE] == uuid:
            yield box
