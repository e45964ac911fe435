"""The file from which pixels were decoded, for encoders that can keep its encoding or take its data unchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from engine.decode_limits import Size
from engine.formats import FileFormat

Box: TypeAlias = tuple[int, int, int, int]
"""Left, top, right and bottom in pixels."""

# Whether an EXIF orientation exchanges rows and columns, and then reverses rows, and reverses columns.
_STEPS = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}
_ORIENTATIONS = {steps: orientation for orientation, steps in _STEPS.items()}


def combined_orientation(first: int, second: int) -> int:
    """The EXIF orientation that has the effect of `first` followed by `second`."""
    exchanged, rows, columns = _STEPS[first]
    then_exchanged, then_rows, then_columns = _STEPS[second]
    if then_exchanged:
        rows, columns = columns, rows
    return _ORIENTATIONS[exchanged != then_exchanged, rows != then_rows, columns != then_columns]


@dataclass(frozen=True, slots=True)
class Origin:
    """The file from which a raster was decoded, and the changes of its pixels since then.

    `box` is the part of the stored image that is left, which `orientation` (1 to 8, of EXIF) turns upright. `exact`:
    these are the only changes.
    """

    format: FileFormat
    data: bytes
    box: Box
    orientation: int = 1
    exact: bool = True

    @property
    def size(self) -> Size:
        """Width and height of the part that is left, as it is turned."""
        left, top, right, bottom = self.box
        return (bottom - top, right - left) if self.orientation >= 5 else (right - left, bottom - top)

    def changed(self) -> Origin:
        """The origin of pixels that were changed in another way than by `cropped` and `turned`."""
        return replace(self, exact=False)

    def turned(self, orientation: int) -> Origin:
        """The origin of pixels that were turned as an EXIF orientation is."""
        return replace(self, orientation=combined_orientation(self.orientation, orientation))

    def cropped(self, x: int, y: int, width: int, height: int) -> Origin:
        """The origin of a part of the turned image."""
        exchanged, rows, columns = _STEPS[self.orientation]
        across, down = self.size
        x = across - x - width if columns else x
        y = down - y - height if rows else y
        if exchanged:
            x, y = y, x
            width, height = height, width
        left = self.box[0] + x
        top = self.box[1] + y
        return replace(self, box=(left, top, left + width, top + height))
