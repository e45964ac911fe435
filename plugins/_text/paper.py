"""Sizes of paper, the part of a page that its margin leaves, and how content is placed in a frame."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from engine import InvalidOption

POINTS = 72 / 25.4
"""Points in a millimeter."""
SIZES = MappingProxyType(
    {
        "a3": (297.0, 420.0),
        "a4": (210.0, 297.0),
        "a5": (148.0, 210.0),
        "a6": (105.0, 148.0),
        "letter": (215.9, 279.4),
        "legal": (215.9, 355.6),
        "tabloid": (279.4, 431.8),
    }
)
"""Width and height in mm, upright, by name."""
MARGIN = 20.0
"""The default distance of text to the edges of the page in mm."""


@dataclass(frozen=True)
class Paper:
    """A page with a margin on all sides, in mm."""

    width: float
    height: float
    margin: float

    @classmethod
    def of(cls, page_size: str, landscape: bool, margin: float) -> Paper:
        """The page that the options describe. Raises InvalidOption if the margin leaves no space."""
        short, long = SIZES[page_size]
        check_margin(margin, short)
        return cls(long, short, margin) if landscape else cls(short, long, margin)

    @property
    def points(self) -> tuple[float, float]:
        """Width and height in points."""
        return self.width * POINTS, self.height * POINTS

    @property
    def area(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of what the margin leaves, in points."""
        edge = self.margin * POINTS
        return edge, edge, self.width * POINTS - edge, self.height * POINTS - edge


def check_margin(margin: float, side: float) -> None:
    """Raises InvalidOption if twice the margin is not less than the shorter side of the page."""
    if 2 * margin >= side:
        raise InvalidOption("margin leaves no space on the page.", reason="out_of_range", param="margin")


def fitted(
    size: tuple[float, float], frame: tuple[float, float, float, float], fit: str
) -> tuple[float, float, float, float, float, float]:
    """The matrix that places content of this size in the middle of a frame: left, bottom, right and top.

    `fit` is `inside`, `cover` or `fill`.
    """
    left, bottom, right, top = frame
    across, down = (right - left) / size[0], (top - bottom) / size[1]
    if fit != "fill":
        across = down = min(across, down) if fit == "inside" else max(across, down)
    return across, 0, 0, down, (left + right - size[0] * across) / 2, (bottom + top - size[1] * down) / 2
