"""Fonts: those of the system, those of MuPDF, which are always there, and the choice of one for each part of a text."""

import os
from pathlib import Path

from engine import Requirement

FOLDERS = tuple(folder for folder in map(Path, ("/usr/share/fonts", "/usr/local/share/fonts")) if folder.is_dir())
"""Folders of fonts that jobs may read."""
EXTENSIONS = (".ttf", ".otf", ".ttc", ".otc")
"""Extensions of the files of fonts that all renderers read."""

_NAMES = [name.lower() for folder in FOLDERS for _, _, names in os.walk(folder) for name in names]

FONTS = Requirement(
    "fonts",
    "text in the fonts that files name",
    "apt-get install libfontconfig1 fonts-dejavu-core fonts-liberation",
    present=any(name.endswith(EXTENSIONS) for name in _NAMES),
)
COLOR_EMOJI = Requirement(
    "color emoji",
    "emoji in color",
    "apt-get install fonts-noto-color-emoji",
    present=any("emoji" in name for name in _NAMES),
)
