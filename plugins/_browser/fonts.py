"""Fonts of MuPDF for what no font of the system draws, of which the browser knows nothing else."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path

from plugins._fonts.builtin import BuiltinFonts
from plugins._fonts.choice import FontChooser
from plugins._fonts.installed import INSTALLED

TEXT = "(document.body?.innerText ?? '').replace(document.fonts.size ? /\\p{Co}/gu : '', '')"
"""The expression for the text that a page shows, without characters of private use if it has fonts of its own."""
# The browser keeps how it has drawn a word in a first font and its features: a feature that no font has renews that.
_ADD = """(async (fonts, chars) => {
    for (const [family, data] of fonts)
        document.fonts.add(await new FontFace(family, Uint8Array.from(atob(data), c => c.charCodeAt(0))).load())
    const found = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), wanted = new Set(chars)
    while (found.nextNode()) {
        const element = found.currentNode.parentElement
        if (![...found.currentNode.data].some(c => wanted.has(c))) continue
        const style = getComputedStyle(element)
        const features = [style.fontFeatureSettings, '"none"'].filter(one => one !== "normal")
        const families = [style.fontFamily, ...fonts.map(([family]) => JSON.stringify(family))]
        element.style.setProperty("font-family", families.join(), "important")
        element.style.setProperty("font-feature-settings", features.join(), "important")
    }
})"""


TEXT_OF_TEMPLATE = """(markup => {
    const body = new DOMParser().parseFromString(markup, "text/html").body
    for (const element of body.querySelectorAll(".title")) element.textContent = document.title
    return body.textContent
})"""
"""The expression of a function that returns the text which the HTML of a header or footer shows."""


def install(folder: Path) -> None:
    """Writes a font of MuPDF to a new folder if the system has none: without any, the browser crashes at a text."""
    if not INSTALLED and (font := BuiltinFonts().of("a")):
        folder.mkdir()
        (folder / "font.otf").write_bytes(font.data)


def addition(text: str, fixed: str = "") -> str:
    """The expression that adds the fonts for a text to a page, after those of its own; empty if none are needed.

    To the part of it that is `fixed`, no fonts can be added. Issues a warning for characters that no font has.
    """
    chooser = FontChooser()
    chosen = {char: font for char in sorted({*text, *fixed}) for _, font in chooser.runs(char)}
    drawn = [char for char, font in chosen.items() if font in chooser.builtin.values()]
    chooser.missing.update(dict.fromkeys(char for char in drawn if char in fixed))
    chooser.warn()
    fonts = [(family, b64encode(font.data).decode()) for family, font in chooser.builtin.items()]
    return f"{_ADD}({json.dumps(fonts)}, {json.dumps(''.join(drawn))})" if fonts else ""
