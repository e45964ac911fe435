"""Markdown of documents by PyMuPDF4LLM, without its neural networks, which take 250 MB and start threads."""

import sys
from types import SimpleNamespace

from engine.mupdf import pymupdf

_REPLACED = {"pymupdf.layout": None, "onnxruntime": SimpleNamespace(InferenceSession=object)}

sys.modules.update(_REPLACED)  # type: ignore[arg-type]
import pymupdf4llm  # noqa: E402

for _name in _REPLACED:
    del sys.modules[_name]


def to_markdown(document: pymupdf.Document) -> str:
    """The text with headings, lists, tables and links."""
    text: str = pymupdf4llm.to_markdown(document, ignore_images=True, show_progress=False)
    return text or "\n"
