"""Steps that several plans of one input have in common: they run once, so that the input is decoded once."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, repeat, tee
from math import inf
from typing import Any, TypeAlias

from engine.conversions import AnyConversion, AnyTransform, Conversion, FidelityWarning
from engine.frames import Frame
from engine.media import Raster
from engine.options import OptionValues
from engine.planner import Plan

_Step: TypeAlias = tuple[AnyConversion | AnyTransform, frozenset[tuple[str, str]]]
_Path: TypeAlias = tuple[_Step, ...]
_Warnings: TypeAlias = Sequence[FidelityWarning]


class SharedSteps:
    """The results of steps that several plans have in common with the values of their options, each with its warnings.

    Files and images are kept, and not documents, which steps change, nor several pages, which need much memory.
    """

    def __init__(self, plans: Iterable[tuple[Plan, OptionValues]]) -> None:
        plans = list(plans)
        self._plans = plans
        counts = Counter(path for plan, options in plans for path in self._paths(plan, options))
        longer = Counter[_Path]()
        for path, count in counts.items():
            longer[path[:-1]] = max(longer[path[:-1]], count)
        self._ends = {path for path, count in counts.items() if count > max(1, longer[path])}
        self._kept: dict[_Path, tuple[Iterator[Any], list[FidelityWarning]]] = {}

    def of(self, plan: Plan, options: OptionValues) -> PlanSteps:
        """The steps of one of the plans."""
        return PlanSteps(self, self._paths(plan, options))

    def _paths(self, plan: Plan, options: OptionValues) -> list[_Path]:
        """Keys of the results of the steps before the encoder: each step and the ones before it, with their options."""
        steps = plan.steps[: plan.encoder_position] if plan.tool is None else ()
        names = [(step, step.options.keys() & options.keys() - self.hints(step)) for step in steps]
        keys: list[_Path] = [
            ((step, frozenset((name, repr(options[name])) for name in found)),) for step, found in names
        ]
        return list(accumulate(keys))

    def hints(self, step: AnyConversion | AnyTransform) -> frozenset[str]:
        """The options that a decoder uses only to find out which pixels are needed."""
        if not isinstance(step, Conversion) or not step.reduces:
            return frozenset()
        of_transforms = {name for plan, _ in self._plans for one in plan.transforms for name in one.options}
        return frozenset(of_transforms & step.options.keys())

    def values(self, names: frozenset[str]) -> list[OptionValues]:
        """The different values that the plans have for these options."""
        given = [{name: options[name] for name in names & options.keys()} for _, options in self._plans]
        return [one for index, one in enumerate(given) if one not in given[:index]]

    def find(self, paths: Sequence[_Path]) -> tuple[int, Any, list[FidelityWarning]] | None:
        """The number of steps that need not run, their result and their warnings."""
        for index in reversed(range(len(paths))):
            if paths[index] in self._kept:
                copies, issued = self._kept[paths[index]]
                return index + 1, next(copies), issued
        return None

    def keep(self, path: _Path, payload: Any, issued: list[FidelityWarning]) -> Any:
        """Keeps the result of a step if other plans go on from it. Returns the result, or a copy."""
        if path not in self._ends:
            return payload
        copies: Iterator[Any]
        if isinstance(payload, Raster) and (payload.count == 1 or payload.animated):
            copies = _copies(payload)
        elif isinstance(payload, bytes):
            copies = repeat(payload)
        else:
            return payload
        self._kept[path] = copies, issued
        return next(copies)


class PlanSteps:
    """The steps of one plan before its encoder, whose results it shares with others."""

    def __init__(self, shared: SharedSteps, paths: Sequence[_Path]) -> None:
        self._shared = shared
        self._paths = paths
        self._issued: list[FidelityWarning] = []

    def start(self, payload: Any) -> tuple[int, Any]:
        """The number of steps that need not run, and their result; 0 and the payload if all have to."""
        done, result, self._issued = self._shared.find(self._paths) or (0, payload, [])
        _issue_again(self._issued)
        return done, result

    def run(
        self,
        index: int,
        step: AnyConversion | AnyTransform,
        options: OptionValues,
        run_with: Callable[[OptionValues], Any],
    ) -> Any:
        """Runs a step, and keeps its result for other plans.

        A decoder that reads only needed pixels reads as many as the most demanding plan needs.
        """
        hints = self._shared.hints(step)
        own = {name: value for name, value in options.items() if name not in hints}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            payload = max((run_with({**own, **given}) for given in self._shared.values(hints)), key=_pixels)
        issued = [one.message for one in caught if isinstance(one.message, FidelityWarning)]
        _issue_again(issued)
        self._issued = [*self._issued, *issued]
        return self._shared.keep(self._paths[index], payload, self._issued)


def _pixels(payload: Any) -> float:
    """How many pixels of an image are decoded; all if that is unknown."""
    return payload.peak_pixels or inf if isinstance(payload, Raster) else inf


def _copies(raster: Raster) -> Iterator[Raster]:
    """Yields the raster any number of times, as `Raster.copies` does, with the warnings of its decoder in each.

    Frames of 8 bits are made from the deep ones, if there are any: only one of the two can be decoded.
    """
    is_deep = raster.deep_frames is not None
    decoded = _recorded(raster.frames if raster.deep_frames is None else raster.deep_frames)
    while True:
        decoded, given = tee(decoded)
        frames: Iterator[Frame] = map(_with_warnings, given)
        if is_deep:
            frames, again = tee(frames)
            shallow = (replace(frame, pixels=frame.image) for frame in again)
            yield replace(raster, frames=shallow, deep_frames=frames)
        else:
            yield replace(raster, frames=frames)


def _recorded(frames: Iterable[Frame]) -> Iterator[tuple[Frame, _Warnings]]:
    """Yields the frames with the warnings of the decoder, which are not issued."""
    remaining = iter(frames)
    while True:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            frame = next(remaining, None)
        if frame is None:
            return
        yield frame, [one.message for one in caught if isinstance(one.message, FidelityWarning)]


def _with_warnings(recorded: tuple[Frame, _Warnings]) -> Frame:
    frame, issued = recorded
    _issue_again(issued)
    return frame


def _issue_again(issued: _Warnings) -> None:
    for one in issued:
        FidelityWarning.issue(one.code, one.message, of_original=one.of_original)
