"""The tool pdf-compress: contents of pages, profiles, metadata, and what signatures show; and memory."""

import subprocess
import sys
import zlib
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pikepdf import Array, Dictionary, Name, Pdf, Stream, String

from engine.mupdf import pymupdf
from plugins._color import profiles
from tests.support.results.conversions import codes
from tests.support.samples.pdf_documents import compress, opened, saved
from tests.support.samples.pdf_images import PHOTO, add_page, flate, image_document, image_stream


def _with_metadata(made: Pdf, packet: bytes) -> bytes:
    """The file with a packet that pikepdf leaves as it is."""
    made.Root.Metadata = made.make_stream(packet, Type=Name.Metadata, Subtype=Name.XML)
    made.save(file := BytesIO(), fix_metadata_version=False)
    return file.getvalue()


def _shown(data: bytes) -> list[bytes]:
    """The pages as MuPDF draws them."""
    return [page.get_pixmap().samples for page in pymupdf.open(stream=data)]


def test_parts_of_content_that_a_page_has_alone_are_joined() -> None:
    made = Pdf.new()
    shared = made.make_stream(b"0 0 1 rg 40 40 20 20 re f")
    for contents in ([b"q 1 0 0 rg 5 5 20", b"9 re f Q"] * 5, [b"0 1 0 rg 5 5 9 9 re f"]):
        page = made.add_blank_page(page_size=(100, 100)).obj
        parts = [made.make_stream(part) for part in contents]
        page.Contents = Array(parts if len(parts) > 1 else [shared, shared])
    before = saved(made)

    after = compress(before).data

    result = opened(after)
    assert isinstance(result.pages[0].obj.Contents, Stream)
    assert len(result.pages[1].obj.Contents) == 2
    assert _shown(after) == _shown(before)


@pytest.mark.parametrize(("name", "part", "kept"), [("srgb", "2", False), ("srgb", "1", True), ("p3", "2", True)])
def test_profiles_of_srgb_become_short(name: str, part: str, *, kept: bool) -> None:
    made = Pdf.new()
    short = profiles.named(name).data
    profile = short + bytes(4000)  # which readers ignore
    add_page(made, flate(made, PHOTO, Array([Name.ICCBased, made.make_stream(profile, N=3)])))
    packet = f'<x xmlns:pdfaid="http://www.aiim.org/pdfa/ns/id/" pdfaid:part="{part}"/>'

    result = opened(compress(_with_metadata(made, packet.encode())).data)

    found = [item.read_bytes() for item in result.objects if isinstance(item, Stream) and "/N" in item]
    assert (profile if kept else short) in found


def test_metadata_lose_only_the_space_between_elements() -> None:
    start = b'<?xpacket begin="" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    text = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a> </a><b>1 &gt; 2 </b><c/></x:xmpmeta>'
    spaced = text.replace(b"><a", b">\n\t<a").replace(b"><b", b">  <b").replace(b"/></x", b"/>\n</x")
    made = Pdf.new()
    add_page(made, flate(made, PHOTO, Name.DeviceRGB))
    packet = start + b"\n" + spaced + b" " * 2000 + b'<?xpacket end="w"?>'

    result = opened(compress(_with_metadata(made, packet)).data)

    assert result.Root.Metadata.read_bytes() == start + text + b'<?xpacket end="w"?>'


def test_the_look_of_a_signature_stays() -> None:
    """MuPDF draws the word SIGN in fields without a signature."""
    made = Pdf.new()
    page = made.add_blank_page(page_size=(200, 100)).obj
    look = made.make_stream(b"0 0 1 rg 0 0 80 40 re f", Type=Name.XObject, Subtype=Name.Form, BBox=[0, 0, 80, 40])
    entries: dict[str, Any] = {
        "FT": Name.Sig,
        "V": Dictionary(Type=Name.Sig),
        "AP": Dictionary(N=look),
        "Rect": [50, 50, 130, 90],
    }
    field = made.make_indirect(Dictionary(Type=Name.Annot, Subtype=Name.Widget, T=String("s"), F=4, **entries))
    page.Annots = Array([field])
    made.Root.AcroForm = Dictionary(Fields=[field], SigFlags=3)
    page.Filler = made.make_stream(bytes(9999))
    before = saved(made)

    result = compress(before)

    assert codes(result) == {"signature_invalidated"}
    assert _shown(result.data) == _shown(before)
    assert not len(opened(result.data).Root.AcroForm.Fields)


# Besides the file itself: a copy, decoded samples, and space for modules.
_MAX_COPIES = 4
_WITH_LIMIT = f"""
import resource, sys
from pathlib import Path
from plugins._pdf.compression import compress
small, large = (Path(name).read_bytes() for name in sys.argv[1:])
compress(small, "", 75, 150)  # loads modules
pages = int(Path("/proc/self/statm").read_text().split()[0])
limit = pages * resource.getpagesize() + {_MAX_COPIES} * len(large)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
print(len(compress(large, "", 75, 150)))
"""


def _noise(made: Pdf, side: int) -> Stream:
    """An image that is as large as its samples."""
    samples = zlib.compress(np.random.default_rng(0).bytes(side) * 3 * side, 0)
    return image_stream(made, samples, Name.DeviceRGB, Width=side, Height=side, Filter=Name.FlateDecode)


def test_a_large_image_is_compressed_without_several_copies_of_it(tmp_path: Path) -> None:
    small, large = tmp_path / "small.pdf", tmp_path / "large.pdf"
    for file, side in ((small, 64), (large, 3000)):
        file.write_bytes(image_document(partial(_noise, side=side)))

    done = subprocess.run([sys.executable, "-c", _WITH_LIMIT, small, large], check=True, capture_output=True)

    assert int(done.stdout) < large.stat().st_size / 10
