"""Imports PyMuPDF without its optional neural network, which takes 0.5 s, 90 MB and threads in every process."""

import sys

_HIDDEN = ("pymupdf.layout", "pymupdf4llm")

sys.modules.update(dict.fromkeys(_HIDDEN))  # type: ignore[arg-type]
import pymupdf as pymupdf  # noqa: E402

for _name in _HIDDEN:
    del sys.modules[_name]

pymupdf.TOOLS.mupdf_display_errors(False)
pymupdf.TOOLS.mupdf_display_warnings(False)
