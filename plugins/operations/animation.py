"""Frames, durations, repetitions and the frame rate of animations."""

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
Fps: TypeAlias = Annotated[
    float,
    Field(
        ge=1,
        le=60,
        examples=[12],
        description="Most frames of an animation in a second, on average; ones that come sooner are left out, and the "
        "total time stays.",
    ),
]
Reverse: TypeAlias = Annotated[bool, Field(description="Plays an animation backwards.")]
_Change: TypeAlias = Callable[[Iterable[Frame]], Iterator[Frame]]
_UNTIMED = 100.0  # milliseconds for which browsers show a frame without a duration
_TOLERANCE = 0.5  # milliseconds, because many formats round times to whole ones


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
        _warn_ignored(names)
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


@transform(RASTER, after=timing, memory=8)
def frame_rate(raster: Raster, *, fps: Fps | None = None) -> Raster:
    """Leaves out frames of an animation that come too soon. Issues a FidelityWarning if the raster is not animated.

    Keeps all remaining frames in memory: their number is known only after all durations have been read.
    """
    if fps is None:
        return raster
    if not raster.animated:
        _warn_ignored(["fps"])
        return raster
    kept, raster = _with_frames(raster, lambda found: _slowed(found, 1000 / fps)).read_ahead()
    count = len(kept)
    return replace(raster, count=count, animated=count > 1, sizes=[*raster.sizes][:count])


def _warn_ignored(names: Iterable[str]) -> None:
    message = f"Options without effect on a file that is not animated: {', '.join(names)}."
    FidelityWarning.issue("option_ignored", message)


def _slowed(frames: Iterable[Frame], period: float) -> Iterator[Frame]:
    """On average at most one frame in each period of milliseconds, which is shown until the next one that remains."""
    kept: Frame | None = None
    begin = due = 0.0
    for frame in frames:
        duration = frame.duration or _UNTIMED
        if kept is not None and begin < due - _TOLERANCE:
            kept = replace(kept, duration=kept.duration + duration)
        else:
            if kept is not None:
                yield kept
            kept = replace(frame, duration=duration)
            due = (due if begin < due + period else begin) + period
        begin += duration
    if kept is not None:
        yield kept


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
