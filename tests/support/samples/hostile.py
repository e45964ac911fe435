"""Hostile files and their allowed outcomes: bombs, loops, false sizes, and attempts to reach other resources."""

import base64
import gzip
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
import pillow_heif
import tifffile
from PIL import Image

from engine import OptionValues
from engine.mupdf import pymupdf
from engine.options import NO_OPTIONS
from tests.support.samples.generated import sample, saved
from tests.support.samples.heif_files import grid
from tests.support.samples.hostile_documents import (
    broken_texts,
    chained_svgs,
    crowded_pages,
    flat_pdf,
    nested_svgs,
    open_texts,
    repeated_page,
    svg,
)

DONE = ("done", "")
CORRUPT = ("processing_failed", "corrupt_input")
TIMEOUT = ("processing_failed", "timeout")
MEMORY = ("processing_failed", "out_of_memory")
PIXELS, FRAMES, PAGES = (("file_too_large", reason) for reason in ("pixels", "frames", "pages"))
EXTERNAL = UNRECOGNIZED = ("invalid_file_type", "unrecognized")
BYTES, ELEMENTS, SCANS = (("file_too_large", reason) for reason in ("bytes", "elements", "scans"))

Outcome = tuple[str, str]


@dataclass(frozen=True)
class Canary:
    """Resources that must not be accessed: a URL that counts requests, and a file."""

    url: str
    file: Path


@dataclass(frozen=True)
class Hostile:
    """A hostile file, its target format, and the allowed outcomes as pairs of code and reason."""

    name: str
    make: Callable[[Canary], bytes]
    allowed: tuple[Outcome, ...]
    target: str = "png"
    long: bool = False  # runs to its deadline, or takes seconds to make
    options: OptionValues = field(default_factory=dict)


def png_chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, *before: bytes, depth: int = 8, data: bytes = b"") -> bytes:
    """A PNG whose header has this size, with additional chunks before its data."""
    header = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, 0, 0, 0, 0))
    body = b"".join(before) + png_chunk(b"IDAT", zlib.compress(data, 9)) + png_chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + header + body


def eps(program: str, box: str = "0 0 100 100") -> bytes:
    return f"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: {box}\n%%EndComments\n{program}\nshowpage\n%%EOF\n".encode()


def _boxed_eps(box: str, _canary: Canary) -> bytes:
    return eps("0 0 9 9 rectfill", box)


def _embedded(data: bytes, media_type: str) -> bytes:
    text = base64.b64encode(data).decode()
    return svg(f'<image xlink:href="data:{media_type};base64,{text}" width="50" height="50"/>')


def _uses(levels: int, fan: int) -> bytes:
    groups = "".join(f'<g id="g{n}">' + f'<use xlink:href="#g{n - 1}"/>' * fan + "</g>" for n in range(1, levels + 1))
    return svg(f'<rect id="g0" width="1" height="1"/>{groups}<use xlink:href="#g{levels}"/>')


def _gif(frames: int, side: int) -> bytes:
    data = saved(Image.new("P", (side, side)), "GIF")
    start = data.rindex(b",\0\0\0\0" + struct.pack("<HH", side, side))
    return data[:start] + data[start:-1] * frames + b";"


def _many_scans() -> bytes:
    data = saved(Image.effect_noise((64, 64), 50), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:-2] + data[last:-2] * 2000 + b"\xff\xd9"


def _lying_isobmff(name: str, side: int) -> bytes:
    """An image whose box states 64 x 64 for `side` x `side` pixels."""
    buffer = BytesIO()
    image = Image.new("RGB", (side, side), (9, 99, 200))
    if name == "avif":
        image.save(buffer, "AVIF", speed=10, subsampling="4:0:0")
    else:
        pillow_heif.from_pillow(image).save(buffer)
    real = b"ispe\0\0\0\0" + struct.pack(">II", side, side)
    assert real in buffer.getvalue()
    return buffer.getvalue().replace(real, b"ispe\0\0\0\0" + struct.pack(">II", 64, 64))


def _grid(name: str, side: int, tile: int, _canary: Canary) -> bytes:
    return grid(name, side, tile)


def _avif_sequence_claim(side: int) -> bytes:
    """An animation without primary image, whose track has this size."""
    frames = [Image.new("L", (64, 64), shade) for shade in (0, 255)]
    animation = saved(frames[0], "AVIF", save_all=True, append_images=frames[1:])
    data = bytearray(animation.replace(b"meta", b"free"))
    start = data.index(b"tkhd") - 4
    struct.pack_into(">II", data, start + int.from_bytes(data[start : start + 4]) - 8, side << 16, side << 16)
    return bytes(data)


def _patched(name: str, offset: int, layout: str, *values: int) -> bytes:
    data = bytearray(sample(name))
    struct.pack_into(layout, data, offset, *values)
    return bytes(data)


def _jpeg_claim() -> bytes:
    data = bytearray(sample("jpeg"))
    struct.pack_into(">HH", data, data.index(b"\xff\xc0") + 5, 60_000, 60_000)
    return bytes(data)


def _directories(count: int, *, loop: bool = False) -> bytes:
    """A TIFF of that many tiny directories; the last may point back at the first."""
    entry = struct.Struct("<HHII")
    tags = [(256, 3, 1, 4), (257, 3, 1, 4), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1)]
    tags += [(273, 4, 1, 8), (277, 3, 1, 1), (278, 3, 1, 4), (279, 4, 1, 16)]
    size = 2 + 12 * len(tags) + 4
    out = bytearray(b"II*\0" + struct.pack("<I", 24) + bytes(16))
    for index in range(count):
        following = 24 + size * (index + 1) if index + 1 < count else (24 if loop else 0)
        out += struct.pack("<H", len(tags)) + b"".join(entry.pack(*tag) for tag in tags) + struct.pack("<I", following)
    return bytes(out)


def _deep_tiff_claim() -> bytes:
    buffer = BytesIO()
    tifffile.imwrite(buffer, np.zeros((8, 8, 3), np.float32), photometric="rgb")
    data = buffer.getvalue()
    for tag in (256, 257):
        entry = next(
            struct.pack("<HHII", tag, kind, 1, 8) for kind in (3, 4) if struct.pack("<HHII", tag, kind, 1, 8) in data
        )
        data = data.replace(entry, struct.pack("<HHII", tag, 4, 1, 60_000))
    return data


def _pdf(content: bytes, objects: str = "", resources: str = "", box: str = "0 0 100 100") -> bytes:
    """A page of raw content; MuPDF finds its objects without an index."""
    return (
        b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
        + f"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[{box}]/Contents 4 0 R/Resources<<{resources}>>>>endobj\n".encode()
        + f"4 0 obj<</Length {len(content)}>>stream\n".encode()
        + content
        + b"\nendstream endobj\n"
        + objects.encode()
        + b"trailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"
    )


def _nested_forms(levels: int, fan: int) -> bytes:
    objects = []
    for level in range(levels):
        body = "0 0 50 50 re f" if level == 0 else f"/F{level - 1} Do " * fan
        below = "" if level == 0 else f"/Resources<</XObject<</F{level - 1} {9 + level} 0 R>>>>"
        header = f"/Type/XObject/Subtype/Form/BBox[0 0 100 100]{below}/Length {len(body)}"
        objects.append(f"{10 + level} 0 obj<<{header}>>stream\n{body}\nendstream endobj\n")
    top = levels - 1
    return _pdf(f"/F{top} Do".encode(), "".join(objects), f"/XObject<</F{top} {10 + top} 0 R>>")


def _pages(count: int) -> bytes:
    document = pymupdf.open()
    for _ in range(count):
        document.new_page(width=50, height=50)
    data: bytes = document.tobytes()
    return data


def _apng(claimed: int) -> bytes:
    control = png_chunk(b"acTL", struct.pack(">II", claimed, 0))
    frame = png_chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 4, 4, 0, 0, 1, 10, 0, 0))
    return png(4, 4, control, frame, data=bytes(20))


def _webp(side: int) -> bytes:
    """A few bytes whose header states a lossless image of this size."""
    body = b"\x2f" + struct.pack("<I", (side - 1) | (side - 1) << 14) + bytes(8)
    chunk = b"VP8L" + struct.pack("<I", len(body)) + body + b"\0" * (len(body) % 2)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def _webp_frames(count: int) -> bytes:
    frames = [Image.new("RGB", (4, 4), (index % 256, index // 256, 0)) for index in range(count)]
    return saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=20, lossless=True)


def hostile_files() -> Iterator[Hostile]:
    """All hostile files, generated on demand."""
    yield from _too_large()
    yield from _made(broken_texts(), UNRECOGNIZED)
    yield from _made(nested_svgs(), ELEMENTS)
    yield from _made(chained_svgs(), ELEMENTS, "eps")
    yield from _made(open_texts(), CORRUPT)
    yield from _made(crowded_pages(), ELEMENTS, "pdf", {"renderer": "print"})  # a browser has limits of its own
    yield from _large_drawings()
    yield from _too_many()
    yield from _vector_bombs()
    yield from _loops()
    yield from _spies()
    yield from _disguises()


def _too_large() -> Iterator[Hostile]:
    yield Hostile("png_claim", lambda _: png(20_000, 20_000), (PIXELS,), "jpeg")
    yield Hostile("png_16_bit_claim", lambda _: png(20_000, 20_000, depth=16), (PIXELS,), "jpeg")
    yield Hostile("png_just_too_large", lambda _: png(10_001, 10_000), (PIXELS,), "jpeg")
    yield Hostile("webp_claim", lambda _: _webp(16_383), (PIXELS,))
    yield Hostile("jpeg_claim", lambda _: _jpeg_claim(), (PIXELS,))
    yield Hostile("bmp_claim", lambda _: _patched("bmp", 18, "<ii", 30_000, 30_000), (PIXELS,))
    yield Hostile("bmp_negative", lambda _: _patched("bmp", 18, "<ii", -5, -5), (PIXELS, CORRUPT))
    yield Hostile("gif_claim", lambda _: _patched("gif", 6, "<HH", 65_535, 65_535), (PIXELS,))
    yield Hostile("psd_claim", lambda _: _patched("psd", 14, ">II", 29_000, 29_000), (PIXELS,))
    yield Hostile("psd_deep_claim", lambda _: _patched("psd", 14, ">IIH", 29_000, 29_000, 16), (PIXELS,))
    yield Hostile("tiff_float_claim", lambda _: _deep_tiff_claim(), (PIXELS, CORRUPT))
    yield Hostile("avif_lie", lambda _: _lying_isobmff("avif", 2000), (CORRUPT, DONE))
    yield Hostile("heic_lie", lambda _: _lying_isobmff("heic", 256), (CORRUPT, DONE))
    yield Hostile("avif_lie_36mp", lambda _: _lying_isobmff("avif", 6000), (CORRUPT, DONE, MEMORY), long=True)
    for side, tile in ((13_000, 512), (16_384, 512), (30_000, 512), (65_535, 1024)):
        for name in ("heic", "avif"):
            yield Hostile(f"{name}_grid_{side}", partial(_grid, name, side, tile), (PIXELS,))
    yield Hostile("heic_grid_without_tiles", lambda _: grid("heic", 2048, 512, 4), (CORRUPT,))
    yield Hostile("avif_grid_without_tiles", lambda _: grid("avif", 2048, 512, 4), (CORRUPT,))
    yield Hostile("avif_sequence_claim", lambda _: _avif_sequence_claim(60_000), (PIXELS,))
    yield Hostile("png_text_bomb", lambda _: _png_bomb(b"zTXt"), (BYTES,), "jpeg")
    yield Hostile("png_profile_bomb", lambda _: _png_bomb(b"iCCP"), (BYTES,), "jpeg")
    tags = b"II*\0" + struct.pack("<IHHHII", 8, 1, 256, 3, 0xFFFFFFFF, 8) + bytes(8)
    strip = struct.pack("<HHII", 279, 4, 1, 16)
    long_strip = struct.pack("<HHII", 279, 4, 1, 0xFFFFFFF0)
    yield Hostile("tiff_strip", lambda _: _directories(1).replace(strip, long_strip), (CORRUPT, DONE))
    yield Hostile("tiff_tag_count", lambda _: tags, (CORRUPT,))


def _png_bomb(chunk: bytes) -> bytes:
    """A small PNG with a chunk of 20 MiB of compressed zeros."""
    return png(4, 4, png_chunk(chunk, b"a\0\0" + zlib.compress(bytes(20 << 20))), data=bytes(20))


def _svgz_bomb() -> bytes:
    """An SVG of 40 MiB, compressed."""
    return gzip.compress(svg(" " * (40 << 20)), 1)


def _made(
    files: Mapping[str, bytes], outcome: Outcome, target: str = "png", options: OptionValues = NO_OPTIONS
) -> Iterator[Hostile]:
    for name, content in files.items():
        yield Hostile(name, partial(_content, content), (outcome,), target, options=options)


def _content(content: bytes, _canary: Canary) -> bytes:
    return content


def _large_drawings() -> Iterator[Hostile]:
    yield Hostile("svg_size", lambda _: svg("", 'width="30000" height="30000"'), (PIXELS,))
    yield Hostile("svg_view_box", lambda _: svg("", 'viewBox="0 0 1e5 1e5"'), (PIXELS,))
    yield Hostile("svg_infinite", lambda _: svg("", 'width="1e308" height="1e308"'), (PIXELS,))
    for target in ("pdf", "eps", "svg"):
        yield Hostile(f"svg_infinite_to_{target}", lambda _: svg("", 'width="1e308" height="9"'), (PIXELS,), target)
    yield Hostile("svg_size_to_svg", lambda _: svg("", 'width="30000" height="30000"'), (PIXELS,), "svg")
    yield Hostile("svg_embedded_png", lambda _: _embedded(png(20_000, 20_000), "image/png"), (PIXELS,))
    yield Hostile("eps_box", lambda _: eps("0 0 9 9 rectfill", "0 0 14000 14000"), (PIXELS,))
    for box in ("0 0 1000000 10", "0 0 1e9 1e9", "-2147483648 -2147483648 2147483647 2147483647", "0 0 1e999 9"):
        yield Hostile(f"eps_box {box}", partial(_boxed_eps, box), (PIXELS,), "pdf")
    deferred = eps("0 0 9 9 rectfill", "(atend)").replace(b"%%EOF", b"%%BoundingBox: 0 0 9999999 9999999\n%%EOF")
    yield Hostile("eps_deferred_box", lambda _: deferred, (PIXELS,), "pdf")
    for box in ("9 9 0 0", "0 0 0 0", "0 0 -5 -5"):
        yield Hostile(f"eps_box {box}", partial(_boxed_eps, box), (CORRUPT,), "pdf")
    yield Hostile("pdf_box", lambda _: _pdf(b"0 0 9 9 re f", box="0 0 14000 14000"), (PIXELS,))
    yield Hostile("pdf_box_to_svg", lambda _: _pdf(b"0 0 9 9 re f", box="0 0 14000 14000"), (PIXELS,), "svg")
    yield Hostile("pdf_box_to_eps", lambda _: _pdf(b"0 0 9 9 re f", box="0 0 900000 900"), (PIXELS,), "eps")
    yield Hostile("pdf_endless_box", lambda _: _pdf(b"0 0 9 9 re f", box="0 0 1e30 1e30"), (PIXELS, CORRUPT, DONE))


def _too_many() -> Iterator[Hostile]:
    yield Hostile("gif_frames", lambda _: _gif(3000, 16), (FRAMES,), "webp")
    yield Hostile("gif_pixels_together", lambda _: _gif(200, 2000), (FRAMES,), "webp")
    yield Hostile("webp_frames", lambda _: _webp_frames(501), (FRAMES,), "gif")
    yield Hostile("apng_claim", lambda _: _apng(2**31 - 1), (FRAMES, CORRUPT), "gif")
    yield Hostile("tiff_directories", lambda _: _directories(20_000), (PAGES,), "pdf")
    yield Hostile("tiff_loop", lambda _: _directories(3, loop=True), (CORRUPT, DONE), "pdf")
    yield Hostile("pdf_pages", lambda _: _pages(501), (PAGES,), "tiff")
    yield Hostile("pdf_20000_pages", lambda _: flat_pdf(20_000), (PAGES,), "tiff")
    yield Hostile("pdf_repeated_page", lambda _: repeated_page(20_000), (PAGES,))
    yield Hostile("pdf_repeated_page_to_pdf", lambda _: repeated_page(20_000), (PAGES,), "pdf")
    cycle = flat_pdf(1).replace(b"3 0 R]", b"3 0 R 2 0 R]").replace(b"/Count 1", b"/Count 3")
    yield Hostile("pdf_page_cycle", lambda _: cycle, (CORRUPT,))
    yield Hostile("eps_endless_pages", lambda _: eps("0 0 9 9 rectfill {9 9 9 9 rectfill showpage} loop"), (DONE,))
    yield Hostile("jpeg_scans", lambda _: _many_scans(), (SCANS,))
    yield Hostile("jpeg_scans_on_a_page", lambda _: _many_scans(), (SCANS,), "pdf")


def _image_on_a_page(side: int) -> bytes:
    """A page with an image of few bytes whose header states this size."""
    header = f"/Type/XObject/Subtype/Image/Width {side}/Height {side}/BitsPerComponent 8/ColorSpace/DeviceRGB/Length 0"
    return _pdf(b"90 0 0 90 0 0 cm /I Do", f"5 0 obj<<{header}>>stream\n\nendstream endobj\n", "/XObject<</I 5 0 R>>")


def _unpacking_page() -> bytes:
    """A page whose content is compressed twice and expands to a large size."""
    content = zlib.compress(zlib.compress(b"0 0 9 9 re f" + b" " * (200 << 20), 1))
    return _pdf(content).replace(b"4 0 obj<<", b"4 0 obj<</Filter[/FlateDecode/FlateDecode]", 1)


def _vector_bombs() -> Iterator[Hostile]:
    yield Hostile("svg_elements", lambda _: svg('<rect width="9" height="9"/>' * 60_000), (ELEMENTS,))
    yield Hostile("svg_uses", lambda _: _uses(8, 10), (ELEMENTS,))
    yield Hostile("svg_uses_to_pdf", lambda _: _uses(8, 10), (ELEMENTS,), "pdf")
    yield Hostile("svg_uses_itself", lambda _: svg('<g id="a"><use xlink:href="#a"/></g>'), (ELEMENTS, CORRUPT))
    yield Hostile("svgz_bomb", lambda _: _svgz_bomb(), (BYTES,))
    yield Hostile("svgz_embedded", lambda _: _embedded(_svgz_bomb(), "image/svg+xml"), (BYTES,))
    yield Hostile("svg_uses_embedded", lambda _: _embedded(_uses(8, 10), "image/svg+xml"), (ELEMENTS,))
    blur = '<filter id="b"><feGaussianBlur stdDeviation="1e9"/></filter><rect width="9" height="9" filter="url(#b)"/>'
    yield Hostile("svg_blur", lambda _: svg(blur), (DONE, CORRUPT))
    text = '<text font-size="1e30">a</text><path d="M 1e300 1e300 L -1e300 NaN"/>'
    yield Hostile("svg_huge_figures", lambda _: svg(text), (DONE, CORRUPT))
    yield Hostile("pdf_picture_claim", lambda _: _image_on_a_page(60_000), (DONE, CORRUPT, MEMORY))
    yield Hostile("pdf_picture_claim_to_svg", lambda _: _image_on_a_page(60_000), (CORRUPT,), "svg")
    yield Hostile("pdf_unpacks", lambda _: _unpacking_page(), (DONE, CORRUPT, TIMEOUT), long=True)
    yield Hostile("svg_declarations", lambda _: b"<svg/>" + b"<!DOCTYPE[" * 300_000, (CORRUPT,))
    mask = '<mask id="m" mask="url(#m)"><rect width="9" height="9"/></mask><rect width="9" height="9" mask="url(#m)"/>'
    yield Hostile("svg_mask_of_itself", lambda _: svg(mask), (CORRUPT, DONE))
    pattern = '<pattern id="p" width="1e-7" height="1e-7"><rect width="1" height="1"/></pattern>'
    yield Hostile(
        "svg_tiny_pattern",
        lambda _: svg(pattern + '<rect width="100" height="100" fill="url(#p)"/>'),
        (CORRUPT, DONE, TIMEOUT, MEMORY),
    )


def _loops() -> Iterator[Hostile]:
    yield Hostile("eps_loop", lambda _: eps("{} loop"), (TIMEOUT,), long=True)
    yield Hostile("eps_stopped_loop", lambda _: eps("{ {{} loop} stopped } loop"), (TIMEOUT,), long=True)
    yield Hostile("eps_memory", lambda _: eps("{ 10000000 string } loop"), (CORRUPT, TIMEOUT, MEMORY), long=True)
    yield Hostile("pdf_forms", lambda _: _nested_forms(9, 12), (TIMEOUT, DONE), long=True)
    yield Hostile("pdf_fills", lambda _: _pdf(b"0 0 100 100 re f " * 500_000), (TIMEOUT, DONE), long=True)


def _spies() -> Iterator[Hostile]:
    links = {
        "image": svg('<image xlink:href="LINK" width="9" height="9"/>'),
        "use": svg('<use xlink:href="LINK#a"/>'),
        "import": svg('<style>@import url("LINK");</style><rect width="9" height="9"/>'),
        "entity": b'<!DOCTYPE svg [<!ENTITY x SYSTEM "LINK">]>' + svg("<text>&x;</text>"),
        "sheet": b'<?xml-stylesheet href="LINK" type="text/css"?>' + svg(""),
        "include": svg('<include xmlns="http://www.w3.org/2001/XInclude" href="LINK"/>'),
    }
    for name, text in links.items():
        allowed = (EXTERNAL,) if name == "entity" else (DONE, CORRUPT)
        yield Hostile(f"svg_{name}_file", _linking(text, lambda canary: canary.file.as_uri()), allowed)
        yield Hostile(f"svg_{name}_http", _linking(text, lambda canary: canary.url), allowed)
    write = "({}) (w) file dup (owned) writestring closefile 0 0 9 9 rectfill"
    yield Hostile("eps_writes", lambda c: eps(write.format(c.file)), (CORRUPT,))
    yield Hostile("eps_deletes", lambda c: eps(f"({c.file}) deletefile 0 0 9 9 rectfill"), (CORRUPT,))
    yield Hostile("eps_reads", lambda c: eps(f"({c.file}) run 0 0 9 9 rectfill"), (CORRUPT,))
    seek = "({}/*) {{= pop (seen) = 0 0 9 9 rectfill}} 99 string filenameforall"
    yield Hostile("eps_lists", lambda c: eps(seek.format(c.file.parent)), (CORRUPT,))
    yield Hostile("eps_runs", lambda c: eps(f"(%pipe%rm {c.file}) (w) file closefile 0 0 9 9 rectfill"), (CORRUPT,))
    yield Hostile("svg_embedded_eps", lambda c: _embedded(eps(f"({c.file}) deletefile"), "image/png"), (CORRUPT,))
    stream = "5 0 obj<</Length 0/F({0})/FFilter[]>>stream\n\nendstream endobj\n"
    yield Hostile("pdf_external", lambda c: _pdf(b"0 0 9 9 re f", stream.format(c.file)), (DONE,))
    script = "5 0 obj<</S/URI/URI({0})>>endobj 6 0 obj<</S/JavaScript/JS(app.launchURL('{0}'))>>endobj\n"
    yield Hostile("pdf_script", lambda c: _pdf(b"0 0 9 9 re f", script.format(c.url)), (DONE,))


def _linking(text: bytes, link: Callable[[Canary], str]) -> Callable[[Canary], bytes]:
    return lambda canary: text.replace(b"LINK", link(canary).encode())


def _disguises() -> Iterator[Hostile]:
    yield Hostile("jpeg_and_zip", lambda _: sample("jpeg") + b"PK\x05\x06" + bytes(18), (DONE,))
    yield Hostile("gif_and_script", lambda _: sample("gif") + b"=1;alert(1)", (DONE,))
    yield Hostile("png_and_html", lambda _: sample("png") + b"<script>alert(1)</script>", (DONE,), "jpeg")
    yield Hostile(
        "jpeg_around_pdf", lambda _: sample("jpeg")[:2] + _comment(sample("pdf")) + sample("jpeg")[2:], (DONE,)
    )
    yield Hostile("program_for_pillow", lambda _: b"\x04" + eps("(/etc/passwd) run"), (CORRUPT,))


def _comment(body: bytes) -> bytes:
    return b"\xff\xfe" + struct.pack(">H", len(body) + 2) + body
