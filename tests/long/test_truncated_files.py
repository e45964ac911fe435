"""A file of every format, cut: it is refused, or a warning tells of it, or the result is that of the whole file."""

import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from warnings import catch_warnings, simplefilter
from zipfile import ZipFile

import pytest

from engine import ConversionError
from engine.formats import FileFormat
from engine.mupdf import pymupdf
from engine.registry import load_registry
from plugins._office.libreoffice import LIBREOFFICE
from plugins._text.zip_archives import SIGNATURE
from tests.support.results.conversions import codes, convert
from tests.support.samples import metafiles
from tests.support.samples.broken import BLAMED
from tests.support.samples.corpus import format_files, load_corpus
from tests.support.samples.generated import FORMATS, sample
from tests.support.samples.office_files import docx, odt, opendocument

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]

_REGISTRY = load_registry()
_PLACES = (0.25, 0.5, 0.75, 0.9, 0.99)
_WITHOUT_END = {"csv", "html", "md", "txt"}  # a part of such a file is one
_FOLDERS = (
    "cur", "dds", "exr", "hdr", "ico", "j2k", "jp2", "jxl", "jxr", "office", "pbm", "pcx", "pfm", "pgm", "ppm", "psb",
    "qoi", "sgi", "tga", "vsdx", "xbm", "xpm",
)  # fmt: skip
_TIMES = ("core.xml", "meta.xml", "settings.xml")
_PREFERRED = ("pdf", "png")
_MAX_SIZE = 1 << 20  # bytes; larger files show nothing more
_ENCRYPTED = "password"
_LOST_ALPHA = "rgb32rle_bottom_right.tga"  # its last bytes say that the fourth sample of a pixel is no alpha
_SLIDE = "<office:body><office:presentation><draw:page><draw:frame svg:width='9cm' svg:height='2cm'><draw:text-box>"
_SLIDE += "<text:p>A slide</text:p></draw:text-box></draw:frame></draw:page></office:presentation></office:body>"


def _by_office(extension: str, source: str, data: bytes) -> bytes:
    """The file that LibreOffice writes of another one."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"source.{source}").write_bytes(data)
        profile = f"-env:UserInstallation={(folder / 'profile').as_uri()}"
        command = ["soffice", profile, "--headless", "--convert-to", extension, "--outdir", str(folder / "out")]
        subprocess.run([*command, str(folder / f"source.{source}")], check=True)
        return (folder / "out" / f"source.{extension}").read_bytes()


@cache
def _files() -> Mapping[str, Callable[[], bytes]]:
    """What makes or reads a file, by its name."""
    files: dict[str, Callable[[], bytes]] = {
        f"sample.{_REGISTRY.formats[name].extensions[0]}": partial(sample, name) for name in FORMATS
    }
    files |= {"sample.emf": metafiles.emf, "sample.wmf": metafiles.wmf}
    if LIBREOFFICE.present:
        table = "\n".join(f"{number},{number * number}" for number in range(400)).encode()
        slides = opendocument("presentation", _SLIDE)
        files |= {"sample.docx": docx, "sample.odt": odt, "sample.odp": lambda: slides}
        for source, data, extensions in (
            ("docx", docx("word " * 3000), ("doc", "rtf")),
            ("csv", table, ("xls", "xlsx", "ods")),
            ("odp", slides, ("ppt", "pptx")),
        ):
            files |= {f"sample.{name}": partial(_by_office, name, source, data) for name in extensions}
    paths = [entry.path for entry in load_corpus() if entry.sound and _ENCRYPTED not in entry.name]
    for path in (*paths, *format_files(*_FOLDERS)):
        if path.stat().st_size <= _MAX_SIZE and path.name != _LOST_ALPHA:
            files[path.name] = path.read_bytes
    return files


def _targets(source: FileFormat) -> Iterator[str]:
    """For each step that reads the format, one target whose path begins with it."""
    met = set[object]()
    for target in sorted(_REGISTRY.targets(source), key=lambda one: (one.name not in _PREFERRED, one.name)):
        first = _REGISTRY.plan([source], target.name).conversions[0]
        if first not in met:
            met.add(first)
            yield target.name


def _seen(target: str, data: bytes) -> object:
    """What is to be equal: pixels, or the file itself, without the time of its making."""
    if data[:4] == SIGNATURE:
        with ZipFile(BytesIO(data)) as archive:
            return {one: archive.read(one) for one in archive.namelist() if not one.endswith(_TIMES)}
    if target == "pdf":
        return [page.get_pixmap(dpi=40).samples for page in pymupdf.open(stream=data)]
    reader = _REGISTRY.reader(_REGISTRY.formats[target])
    if target != "png" or reader is None:
        return data
    with catch_warnings():
        simplefilter("ignore")
        return [frame.image.tobytes() for frame in reader(data).frames]


def _outcome(data: bytes, target: str, name: str) -> str | tuple[set[str], object]:
    """The reason of an error, or the codes of warnings and the result."""
    try:
        result = convert(data, target, name)
    except ConversionError as error:
        return error.reason or error.code
    return codes(result), _seen(target, result.data)


def _wrong(data: bytes, target: str, name: str) -> dict[float, object]:
    """By the place of the cut: errors that do not blame the file, and other results of which no warning tells."""
    whole = _outcome(data, target, name)
    assert isinstance(whole, tuple), whole
    found: dict[float, object] = {}
    for place in _PLACES:
        cut = _outcome(data[: int(place * len(data))], target, name)
        if isinstance(cut, str):
            found |= {} if cut in BLAMED else {place: cut}
        elif cut[0] <= whole[0] and cut[1] != whole[1]:
            found[place] = cut[0]
    return found


@pytest.mark.parametrize("name", sorted(_files()))
def test_no_cut_file_has_another_result_without_a_warning(name: str) -> None:
    data = _files()[name]()
    source = _REGISTRY.identify_content(data, name)
    if source.name in _WITHOUT_END or not _REGISTRY.reads(source):
        pytest.skip("Any part of the file is a complete one.")

    assert {target: wrong for target in _targets(source) if (wrong := _wrong(data, target, name))} == {}
