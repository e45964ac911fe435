"""Memory estimates in bytes: the expected use of a plan for a number of pixels, and the limit of its worker process."""

import os

from engine.conversions import Transform
from engine.decode_limits import MAX_PIXELS
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan

MAX_BYTES = 3 << 30
"""The memory limit of any task."""

_MIN_BYTES = 256 << 20  # the codecs themselves, and small images
_THREAD_BYTES = (os.cpu_count() or 1) * (32 << 20)  # codecs start a thread per core
_RESULT_BYTES = 4  # per pixel in an uncompressed file; results are written to memory besides the process's own
_MARGIN = 1.5  # for profiles, bit depth and transparency, which only some images have


def needed_bytes(plan: Plan, pixels: float, options: OptionValues = NO_OPTIONS) -> int:
    """Returns the memory that the plan and its result are expected to need for an image of `pixels`.

    `options` may make it larger.
    """
    for step in plan.steps:
        if isinstance(step, Transform) and step.pixels is not None:
            pixels = max(pixels, min(step.pixels(options, pixels), MAX_PIXELS))
    return min(MAX_BYTES, max(_MIN_BYTES, round(pixels * (plan.memory + _RESULT_BYTES))))


def allowed_bytes(plan: Plan, pixels: float = MAX_PIXELS, files: int = 0) -> int:
    """Returns the memory limit for an image of `pixels` and input files of `files` bytes together."""
    return min(MAX_BYTES, round(pixels * plan.memory * _MARGIN) + _MIN_BYTES + _THREAD_BYTES + 2 * files)
