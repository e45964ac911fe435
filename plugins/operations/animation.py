"""Frames, durations and repetitions of animations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Annotated, TypeAlias

from pydantic import Field

from engine import RASTER, FidelityWarning, Frame, Raster, transform

Loop: TypeAlias = Annotated[
    int, Field(ge=0, le=65_535, examples=[1], description="How often an animation plays; 0: forever.")
]
Delay: TypeAlias = Annotated[
    int, Field(ge=1, le=60_000, examples=[100], description="Milliseconds for which each frame is shown.")
]
Speed: TypeAlias = Annotated[
    float, Field(ge=0.1, le=10, examples=[2], description="Factor by which an animation plays faster.")
]
Frames: TypeAlias = Annotated[
    str,
    Field(
        pattern=r"^every:([2-9]|[1-9]\d{1,2})$",
        examples=["every:2"],
        description="every:N keeps one of N frames, which is shown for the time of all N.",
    ),
]
Reverse: TypeAlias = Annotated[bool, Field(description="Plays an animation backwards.")]
_Change: TypeAlias = Callable[[Iterable[Frame]], Iterator[Frame]]


@transform(RASTER, memory=0)
def timing(
    raster: Raster,
    *,
    frames: Frames | None = None,
    reverse: Reverse = False,
    delay: Delay | None = None,
    speed: Speed = 1,
    loop: Loop | None = None,
) -> Raster:
    """Changes the frames of an animation in the order of its options. Issues a FidelityWarning if it is none."""
    if not raster.animated:
        given = {"frames": frames, "reverse": reverse or None, "delay": delay, "loop": loop}
        names = [name for name, value in given.items() if value is not None] + (["speed"] if speed != 1 else [])
        message = f"Options without effect on a file that is not animated: {', '.join(names)}."
        FidelityWarning.issue("option_ignored", message)
        return raster
    if frames:
        every = int(frames.partition(":")[2])
        kept = [*raster.sizes][::every]
        count = -(-raster.count // every)
        raster = _with_frames(raster, lambda found: _thinned(found, every))
        raster = replace(raster, count=count, animated=count > 1, sizes=kept)
    if reverse:
        raster = replace(_with_frames(raster, _reversed), sizes=[*raster.sizes][::-1])
    if delay is not None or speed != 1:
        raster = raster.map(lambda frame: replace(frame, duration=(frame.duration if delay is None else delay) / speed))
    return raster if loop is None else replace(raster, loop_count=loop)


def _with_frames(raster: Raster, change: _Change) -> Raster:
    deep = raster.deep_frames
    return replace(raster, frames=change(raster.frames), deep_frames=None if deep is None else change(deep))


def _thinned(frames: Iterable[Frame], every: int) -> Iterator[Frame]:
    """The first one of each `every` frames, for the time of all of them."""
    kept: Frame | None = None
    for number, frame in enumerate(frames):
        if kept is not None and number % every:
            kept = replace(kept, duration=kept.duration + frame.duration)
            continue
        if kept is not None:
            yield kept
        kept = frame
    if kept is not None:
        yield kept


def _reversed(frames: Iterable[Frame]) -> Iterator[Frame]:
    yield from reversed([*frames])
