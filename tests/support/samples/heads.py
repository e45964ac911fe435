"""Writes `plugins/_samples.zip`: the shortest beginnings of generated files that are detected as their format.

.venv/bin/python -m tests.support.samples.heads
"""

from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from engine.errors import UnknownFormat
from engine.registry import load_registry
from tests.support.samples import mails, metafiles, office_files
from tests.support.samples.books import zipped
from tests.support.samples.compound_files import compound_file
from tests.support.samples.generated import FORMATS, sample

SAMPLES = Path(__file__).parents[3] / "plugins" / "_samples.zip"
_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)  # bytes


def _detected(content: bytes) -> str | None:
    try:
        return load_registry().identify_content(content).name
    except UnknownFormat:
        return None


def _files() -> dict[str, bytes]:
    """A file of every built-in format that content shows."""
    packages = {"xlsx": "xl/workbook.xml", "pptx": "ppt/presentation.xml", "vsdx": "visio/document.xml"}
    streams = {"doc": "WordDocument", "xls": "Workbook", "ppt": "PowerPoint Document", "vsd": "VisioDocument"}
    kinds = {"odt": "text", "ods": "spreadsheet", "odp": "presentation", "odg": "graphics"}
    return {
        **{name: sample(name) for name in sorted(FORMATS)},
        **{name: zipped({"[Content_Types].xml": "<Types/>", part: "<w/>"}) for name, part in packages.items()},
        **{name: compound_file({stream: b""}) for name, stream in streams.items()},
        **{name: office_files.opendocument(kind, "<office:body/>") for name, kind in kinds.items()},
        "pub": compound_file({"Contents": b"", "\3Internal": b""}),
        "docx": office_files.docx(),
        "rtf": rb"{\rtf1 text}",
        "emf": metafiles.emf(),
        "wmf": metafiles.wmf(),
        "eml": mails.mail().as_bytes(),
        "msg": mails.outlook(),
        "dxf": office_files.dxf(),
        "vdx": office_files.vdx(),
    }


def heads() -> dict[str, bytes]:
    """The beginnings by the name of the format."""
    found = {}
    for name, content in _files().items():
        beginnings = (content[:length] for length in (*_LENGTHS, len(content)))
        found[name] = next((head for head in beginnings if _detected(head) == name), b"")
    return {name: head for name, head in found.items() if head}


if __name__ == "__main__":
    with ZipFile(SAMPLES, "w", ZIP_DEFLATED, compresslevel=9) as archive:
        for name, head in heads().items():
            archive.writestr(ZipInfo(name), head, ZIP_DEFLATED)
