"""Memory in bytes: what a plan is likely to take for so many pixels, and what its process may take at most."""

from __future__ import annotations

import os

from engine.decode_limits import MAX_PIXELS
from engine.planner import Plan

MOST = 3 << 30
"""More than that no job gets."""

_LEAST = 256 << 20  # the codecs themselves, and small pictures
_THREAD = 32 << 20  # what codecs take for each core, on which they start a thread
_MARGIN = 1.5  # for profiles, depth and transparency, which only some pictures have


def needed_bytes(plan: Plan, pixels: float) -> int:
    """What the plan's process is likely to take for a picture of so many pixels."""
    return min(MOST, max(_LEAST, round(pixels * plan.memory)))


def allowed_bytes(plan: Plan, pixels: float = MAX_PIXELS, files: int = 0) -> int:
    """What it may take for a picture of so many pixels, from `files` bytes, before it is refused more."""
    threads = (os.cpu_count() or 1) * _THREAD
    return min(MOST, round(pixels * plan.memory * _MARGIN) + _LEAST + threads + 2 * files)
