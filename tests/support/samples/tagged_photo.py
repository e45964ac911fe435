"""A photo with EXIF and XMP of every kind, and ExifTool, which reads and writes them."""

import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.support.samples.generated import quadrants
from tests.support.samples.profiles import srgb_profile

KEPT = {
    "Make": "Camera Maker",
    "Model": "Camera Model",
    "DateTimeOriginal": "2024:05:01 12:00:00",
    "LensModel": "Lens 50mm",
    "Artist": "An Author",
    "Copyright": "(c) 2024 An Author",
    "ExposureTime": "1/250",
    "ISO": "400",
}
PRIVATE = {
    "GPSLatitude": "51.5",
    "GPSLatitudeRef": "N",
    "GPSLongitude": "0.12",
    "GPSLongitudeRef": "W",
    "GPSAltitude": "35",
    "SerialNumber": "BODY-12345",
    "LensSerialNumber": "LENS-12345",
    "OwnerName": "An Owner",
    "ImageUniqueID": "0123456789abcdef0123456789abcdef",
    "HostComputer": "owners-computer",
    "UserComment": "private comment",
}
XMP_KEPT = {
    "XMP-dc:Creator": "An Author",
    "XMP-dc:Rights": "(c) 2024 An Author",
    "XMP-xmp:CreateDate": "2024:05:01 12:00:00",
    "XMP-exif:DateTimeOriginal": "2024:05:01 12:00:00",
    "XMP-tiff:Model": "Camera Model",
    "XMP-aux:Lens": "Lens 50mm",
    "XMP-xmp:Rating": "4",
}
XMP_PRIVATE = {
    "XMP-exif:GPSLatitude": "51.5",
    "XMP-exif:GPSLongitude": "-0.12",
    "XMP-photoshop:City": "London",
    "XMP-iptcCore:Location": "A Street",
    "XMP-aux:SerialNumber": "BODY-12345",
    "XMP-aux:OwnerName": "An Owner",
    "XMP-exifEX:SerialNumber": "BODY-12345",
    "XMP-xmpMM:DocumentID": "xmp.did:12345",
}


def exiftool(data: bytes, *arguments: str) -> dict[str, Any]:
    """The tags of a file by group and name."""
    (tags,) = exiftool_of_all([data], *arguments)
    return tags


def exiftool_of_all(files: Sequence[bytes], *arguments: str) -> list[dict[str, Any]]:
    """The tags of each file by group and name, read by one process."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number:02}") for number, _ in enumerate(files)]
        for path, data in zip(paths, files, strict=True):
            path.write_bytes(data)
        command = ["exiftool", "-json", "-G1", *arguments, *map(str, paths)]
        return list(json.loads(subprocess.run(command, capture_output=True, check=True).stdout))


@cache
def tagged_photo() -> bytes:
    """A JPEG with all these tags, maker notes, a preview and a profile, written by ExifTool."""
    with TemporaryDirectory() as name:
        return _write_photo(Path(name))


def _write_photo(folder: Path) -> bytes:
    file, preview = folder / "photo.jpg", folder / "preview.jpg"
    quadrants().save(file, "JPEG", quality=95, icc_profile=srgb_profile())
    quadrants((40, 30)).save(preview, "JPEG")
    tags = [f"-EXIF:{name}={value}" for name, value in (KEPT | PRIVATE).items()]
    tags += [f"-{name}={value}" for name, value in (XMP_KEPT | XMP_PRIVATE).items()]
    tags += ["-Orientation#=6", f"-ThumbnailImage<={preview}", "-MakerNoteUnknownText=maker note"]
    subprocess.run(["exiftool", "-q", "-overwrite_original", *tags, str(file)], check=True)
    return file.read_bytes()
