"""EPS comments."""

from __future__ import annotations

import re

_BOXES = re.compile(rb"^%%(HiRes|Page)?BoundingBox: [-\d. ]+$", re.MULTILINE)


def boxed(eps: bytes, width: float, height: float) -> bytes:
    """`eps` with the page's box in points: writers note that of the marks, which cuts the margins off."""

    def box(match: re.Match[bytes]) -> bytes:
        name = match.group(1) or b""
        sides = f"{width:.2f} {height:.2f}" if name == b"HiRes" else f"{round(width)} {round(height)}"
        return b"%%" + name + b"BoundingBox: 0 0 " + sides.encode()

    return _BOXES.sub(box, eps, count=4)
