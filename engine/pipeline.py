"""Runs a plan step by step, measures each step, and collects fidelity warnings."""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice, zip_longest
from time import perf_counter
from typing import Annotated, Any, TypeAlias

from pydantic import Field

from engine import media, stages
from engine.conversions import (
    ENCODING_OPTIONS,
    LOSSLESS,
    MAX_BYTES,
    QUALITY,
    AnyConversion,
    AnyTransform,
    Conversion,
    EncodedFile,
    FidelityWarning,
    ToolResult,
)
from engine.decode_limits import check_count
from engine.errors import ConversionError, CorruptInput, InvalidOption, StepFailed
from engine.file_names import FILENAME
from engine.formats import FileFormat
from engine.media import Raster
from engine.options import NO_OPTIONS, PROVIDED, NamedFile, OptionValues
from engine.outcome import Outcome, Text, WarningRecord
from engine.page_ranges import PageRanges
from engine.page_sharing import PageSharing
from engine.planner import Conversions, Plan
from engine.shared_steps import PlanSteps
from engine.size_limit import best_within
from engine.stages import PART
from engine.step_errors import file_errors, of_file, step_errors

PAGES = "pages"
METADATA = "metadata"

_MAX_MESSAGES = 3
_MAX_QUALITY = 100  # if an encoder has no default
_BESIDE_CONTENT = frozenset({QUALITY, "effort", MAX_BYTES, METADATA, FILENAME.name})  # they do not change the content


Seconds: TypeAlias = Annotated[float, Field(ge=0, le=86_400)]
"""A duration that a task reports."""


@dataclass(frozen=True)
class Timing:
    """The duration of a step in seconds, and its stage: decode, convert, tool or encode.

    Rasters are decoded lazily, so decoding counts towards the step that reads the pixels.
    """

    step: Text
    stage: Text
    seconds: Seconds


@dataclass(frozen=True)
class PipelineResult:
    """The last file of the result, the duration of each step, and the outcome, whose size is the sum over all files."""

    file: EncodedFile
    trace: tuple[Timing, ...]
    outcome: Outcome

    @property
    def data(self) -> bytes:
        """The bytes of the last file."""
        return self.file.data


def run(
    plan: Plan,
    inputs: Iterable[bytes],
    options: OptionValues = NO_OPTIONS,
    on_decoded: Callable[[Sequence[Any]], None] = lambda _payloads: None,
    on_file: Callable[[EncodedFile], object] = lambda _file: None,
    names: tuple[str, ...] = (),
    shared: PlanSteps | None = None,
    sharing: PageSharing | None = None,
) -> PipelineResult:
    """Runs the plan. Reads each input only when it is needed. Raises ConversionError only.

    If pages are selected that one file of the target cannot hold, the result is a file for each of them; a tool can
    return several files, too.

    `on_decoded` receives a decoded input, its transformed versions and additional files, before the next conversion.
    `on_file` receives each file of the result before the next page is decoded. `names` are the file names of the
    inputs, for tools; `shared` are the steps whose results other plans use, too. `sharing` decides which pages of a
    document this process converts.
    """
    trace = list[Timing]()
    timings = list[Timing]()
    facts: dict[str, Any] = {}
    file: EncodedFile | None = None
    sizes = []
    qualities = []
    formats: set[FileFormat] = set()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_options(plan, options)
        checked = len(caught)
        unused = plan.without_effect(options)
        options = {name: value for name, value in options.items() if name not in unused}
        payloads, files = open_inputs(plan, inputs, options, trace, names)
        if len(payloads) > 1:
            _forget_partly_ignored(caught, checked, len(payloads))
        parts = _apply_tool(plan, payloads, files, options, timings, facts=facts, names=names)
        options = options if plan.tool else {**options, **files}
        for file in _convert(plan, parts, options, timings, on_decoded, payloads, caught, shared, sharing):
            on_file(file)
            sizes.append(len(file.data))
            formats.add(file.format or plan.target)
            qualities += [] if file.quality is None else [file.quality]
    if file is None:
        raise StepFailed(f"The tool {plan.tool} returned no file.")
    facts |= {"processed_size": sum(sizes), "quality_used": min(qualities, default=None)}
    facts |= _container(plan, file, len(sizes)) | {"warnings": warning_records(caught)}
    target = formats.pop() if len(formats) == 1 else plan.target
    return PipelineResult(file, (*trace, *_sum_by_step(timings)), Outcome(target.name, **facts))


def _convert(
    plan: Plan,
    parts: Iterable[tuple[str | None, Any, int | None]],
    options: OptionValues,
    trace: list[Timing],
    on_decoded: Callable[[Sequence[Any]], None],
    originals: Sequence[Any],
    caught: list[warnings.WarningMessage],
    shared: PlanSteps | None,
    sharing: PageSharing | None,
) -> Iterator[EncodedFile]:
    """Yields the files of the result: of each payload that `_apply_tool` yields, one or several.

    If one of the `originals` is the result, deletes what was `caught` on the way and is not about the original.
    """
    checked = len(caught)
    for name, payload, pages in parts:
        if isinstance(payload, EncodedFile):
            if any(payload.data is original for original in originals):
                _forget_losses(caught, checked)
            yield replace(payload, name=name)
            continue
        if plan.unlimited is not None:
            started = len(caught)
            arguments = options, trace, on_decoded, originals, caught
            files = [*_convert(plan.unlimited, [(name, payload, pages)], *arguments, shared=None, sharing=None)]
            if MAX_BYTES not in options or all(len(file.data) <= int(options[MAX_BYTES]) for file in files):
                yield from files
                continue
            del caught[started:]
        decoded, encoder_input = decode(plan, payload, options, trace, on_decoded, shared)
        may_keep = len(caught) == checked and _may_keep_original(plan, options, payload, decoded)
        for file in _encode(plan, encoder_input, options, trace, name, pages, sharing):
            is_damaged = any(getattr(one.message, "code", None) == "repaired" for one in caught[checked:])
            if may_keep and not is_damaged and len(file.data) > len(payload):
                _forget_losses(caught, checked)
                message = "The original is the result, because converting it makes it larger."
                FidelityWarning.issue("kept_original", message)
                yield EncodedFile(payload)
            else:
                yield file


def _forget_losses(caught: list[warnings.WarningMessage], start: int) -> None:
    """Deletes the warnings from `start` on that do not apply to the original."""
    caught[start:] = [one for one in caught[start:] if getattr(one.message, "of_original", False)]


def _forget_partly_ignored(caught: list[warnings.WarningMessage], start: int, inputs: int) -> None:
    """Deletes the warnings from `start` on of options that have an effect on another one of several inputs."""
    counts = Counter(str(one.message) for one in caught[start:])
    is_partly = {text for text, count in counts.items() if count < inputs and "option_ignored" in text}
    caught[start:] = [one for one in caught[start:] if str(one.message) not in is_partly]


def _container(plan: Plan, file: EncodedFile, count: int) -> dict[str, Any]:
    """The facts of a result of `count` files, the last of which is `file`."""
    is_archive = file.name is not None
    if file.archived and not is_archive:
        return {"container": "zip", "file_count": file.archived}
    inputs = len(plan.sources) - (0 if plan.tool else len(plan.file_names))
    return {"container": "zip" if is_archive else None, "file_count": count if is_archive else inputs}


def warning_records(caught: Iterable[warnings.WarningMessage]) -> tuple[WarningRecord, ...]:
    """The fidelity warnings, one for each code, with at most _MAX_MESSAGES different messages."""
    messages: dict[str, dict[str, None]] = {}
    for warning in (record.message for record in caught):
        if isinstance(warning, FidelityWarning):
            messages.setdefault(warning.code, {})[warning.message] = None
    return tuple(WarningRecord(code, " ".join(islice(texts, _MAX_MESSAGES))) for code, texts in messages.items())


def check_options(plan: Plan, options: OptionValues) -> None:
    """Issues a warning for options that the plan does not have.

    Raises InvalidOption if a required one is missing, or if text is given instead of a file.
    """
    for option in plan.options.values():
        if option.required and option.name not in options:
            raise InvalidOption(f"{option.name} is missing.", reason="missing", param=option.name)
        if option.name in options and option.name not in plan.file_names and option.is_file(options[option.name]):
            raise InvalidOption(f"{option.name} must be a file.", reason="no_file", param=option.name)
    unused = plan.without_effect(options)
    given = options if plan.tool else dict.fromkeys((*options, *plan.file_names))
    ignored = [one for one in given if one not in PROVIDED and (one not in plan.options or one in unused)]
    if PAGES in ignored and plan.tool is None:
        ignored.remove(PAGES)
        PageRanges.parse(str(options[PAGES])).indexes(1)  # formats without this option hold one page
    lossless = LOSSLESS in plan.options and options.get(LOSSLESS)
    if QUALITY in ignored or (QUALITY in options and lossless):
        ignored = [name for name in ignored if name != QUALITY]
        message = f"{'This' if lossless or QUALITY in unused else plan.target} is lossless: quality has no effect."
        FidelityWarning.issue("quality_ignored", message)
    if ignored:
        message = f"Options without effect on {plan.source} to {plan.target}: {', '.join(ignored)}."
        FidelityWarning.issue("option_ignored", message)


def open_file(path: Conversions, data: bytes, options: OptionValues = NO_OPTIONS) -> Any:
    """Runs the steps that open a file. Returns the payload, whose pixels are not decoded. Raises ConversionError."""
    payload: Any = data
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in path:
            payload = content_of(run_step(step, payload, options, []))
    return payload


def open_inputs(
    plan: Plan, inputs: Iterable[bytes], options: OptionValues, trace: list[Timing], names: tuple[str, ...] = ()
) -> tuple[list[Any], dict[str, Any]]:
    """Refuses truncated inputs, and runs the openings.

    Returns the payloads of the inputs, and the payloads of additional files by name.

    With several inputs, `details.index` of an error is the index of the input at fault. `param` is the name of
    an additional file, also if its pixels cannot be decoded later.
    """
    payloads: list[Any] = []
    defaults = plan.tool.opens_with if plan.tool else NO_OPTIONS
    additional = len(plan.openings) - len(plan.file_names)
    for path, source, data in zip(plan.openings, plan.sources, inputs, strict=True):
        payload: Any = data
        name = plan.file_names[len(payloads) - additional] if len(payloads) >= additional else None
        given = {**options, **defaults} if name is None else defaults
        try:
            with nullcontext() if name is None else file_errors(name):
                if source.must_be_complete and source.is_complete and not source.is_complete(data):
                    raise CorruptInput("The file is truncated.")
                for step in path:
                    payload = content_of(run_step(step, payload, given, trace))
        except ConversionError as error:
            if len(plan.openings) > 1:
                error.details["index"] = len(payloads)
            raise
        payloads.append(payload if name is None else of_file(payload, name))
    return payloads[:additional], _by_parameter(plan, payloads[additional:], names[additional:])


def _by_parameter(plan: Plan, payloads: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The payloads of additional files by the names of their parameters. `names` are those of the files."""
    found: dict[str, Any] = {}
    for parameter, payload, name in zip_longest(plan.file_names, payloads, names):
        declared = plan.tool.files.get(parameter, PART) if plan.tool else None
        value = NamedFile(name or parameter, payload) if declared and declared.format is None else payload
        found[parameter] = [*found.get(parameter, ()), value] if declared and declared.maximum > 1 else value
    return found


def _apply_tool(
    plan: Plan,
    payloads: list[Any],
    files: Mapping[str, Any],
    options: OptionValues,
    trace: list[Timing],
    facts: dict[str, Any],
    names: tuple[str, ...],
) -> Iterator[tuple[str | None, Any, int | None]]:
    """Yields the payloads of the result: each with its name in an archive, if there is one, and its number of pages.

    Adds the facts of the tool and the numbers of pages to `facts`. Without a tool, yields the only payload.
    """
    tool = plan.tool
    if tool is None:
        yield None, payloads[0], None
        return
    tool.check_files(files)
    if tool.stages_parameter:
        provided = {name: options.get(name) for name in PROVIDED}
        files = {tool.stages_parameter: stages.bound(tool, plan.stages, files, run, provided)}
    files = {**files, tool.names_parameter: names[: len(payloads)]} if tool.names_parameter else files
    originals = None if tool.count is None else sum(map(tool.count, payloads))
    started = perf_counter()
    with step_errors(tool):
        returned = tool(payloads, options, files)
    result = returned if isinstance(returned, ToolResult) else ToolResult(returned)
    counts: list[int | None] = []
    parts = iter(result.files) if result.payload is None else iter([(None, result.payload)])
    while True:
        with step_errors(tool):  # the tool can be a generator of files
            name, payload = next(parts, (None, None))
        if payload is None:
            break
        is_file = isinstance(payload, EncodedFile)
        if is_file != tool.encodes or not (is_file or tool.format.holds(payload)):
            raise StepFailed(f"The tool {tool} returned {type(payload).__name__}, not {tool.format}.")
        counts.append(payload.pages if is_file else tool.count and tool.count(payload))
        trace.append(Timing(str(tool), "tool", perf_counter() - started))
        yield name, payload, counts[-1]
        started = perf_counter()
    known = [count for count in counts if count is not None]
    facts |= {"original_page_count": originals, "page_count": sum(known) if known else None, **result.facts}


def decode(
    plan: Plan,
    payload: Any,
    options: OptionValues,
    trace: list[Timing],
    on_decoded: Callable[[Sequence[Any]], None],
    shared: PlanSteps | None = None,
) -> tuple[Any, Any]:
    """Runs the steps before the encoder. Returns the first decoded payload and the encoder's input."""
    first: Any = None
    decoded: list[Any] = []
    files = [options[name] for name in plan.file_names if plan.tool is None]
    done, payload = shared.start(payload) if shared else (0, payload)
    if done and not isinstance(payload, bytes):
        first = payload
        decoded = [payload]
    for index, step in enumerate(plan.steps[done : plan.encoder_position], done):
        if decoded and isinstance(step, Conversion):
            on_decoded([*decoded, *files])
            decoded = []
        run = partial(run_step, step, payload, trace=trace)
        payload = run(options) if shared is None else shared.run(index, step, options, run)
        first = payload if first is None else first
        if decoded or (isinstance(step, Conversion) and isinstance(step.source, FileFormat)):
            decoded.append(payload)
    if decoded:
        on_decoded([*decoded, *files])
    return first, payload


def _encode(
    plan: Plan,
    payload: Any,
    options: OptionValues,
    trace: list[Timing],
    name: str | None,
    pages: int | None,
    sharing: PageSharing | None,
) -> Iterator[EncodedFile]:
    """Runs the encoder and the steps after it, once per selected page if one file cannot hold them all.

    If the payload is a result of a tool, `name` and `pages` describe it.
    """
    encoder, *others = plan.steps[plan.encoder_position :]
    if isinstance(payload, Raster) and ENCODING_OPTIONS & encoder.options.keys() & options.keys():
        payload = replace(payload, origin=None)
    elif isinstance(payload, Raster) and plan.source == plan.target and LOSSLESS in encoder.options:
        options = {**options, LOSSLESS: not payload.source.lossy}
    if isinstance(encoder, Conversion):
        payload = media.drawn_for(payload, encoder.capabilities_for(options))
    count = 1
    if PAGES in options and plan.tool is None:
        count = media.files_needed(payload, plan.target)

    def encode(part: Any) -> EncodedFile:
        if MAX_BYTES in options and MAX_BYTES in encoder.options:
            file = _encode_within(encoder, part, options, trace)
        else:
            made = run_step(encoder, part, options, trace)
            file = replace(made, encoder_input=part) if isinstance(made, EncodedFile) else EncodedFile(made, part)
        file = follow(others, file, options, trace)
        if not file.data:
            raise StepFailed(f"The step {encoder} returned no data.")
        return file

    files: Iterable[EncodedFile]
    if sharing is not None and isinstance(payload, Raster) and len(payload.order) == count > 1:  # none has been drawn
        check_count(payload.count, payload.sizes, payload.kind)
        files = sharing.files(count, lambda index: encode(payload.page(index)))
    else:
        files = map(encode, [payload] if count == 1 else media.split(payload))
    digits = max(2, len(str(count)))
    for number, file in enumerate(files, 1):
        yield replace(file, name=name if count == 1 else f"{number:0{digits}}", pages=pages or file.pages)


def follow(
    steps: Sequence[AnyConversion | AnyTransform], file: EncodedFile, options: OptionValues, trace: list[Timing]
) -> EncodedFile:
    """The file after the steps that follow its encoder."""
    for step in steps:
        made = run_step(step, file.data, options, trace)
        secrets = made.secrets if isinstance(made, EncodedFile) else file.secrets
        file = replace(file, data=content_of(made), secrets=secrets)
    return file


def _encode_within(
    encoder: AnyConversion | AnyTransform, payload: Any, options: OptionValues, trace: list[Timing]
) -> EncodedFile:
    """Encodes with the best quality whose file has at most `max_bytes`, up to the option `quality` or its default.

    An encoder without a default compresses without loss, which comes first. Raises ConversionError, reason
    `target_unreachable`.
    """
    max_bytes = int(options[MAX_BYTES])
    copies = media.copies(payload)

    def encode(given: OptionValues) -> EncodedFile:
        copy = next(copies)
        return EncodedFile(run_step(encoder, copy, given, trace), copy)

    if QUALITY not in options and encoder.options[QUALITY].default is None:
        file = encode(options)
        if len(file.data) <= max_bytes:
            return file
    highest = int(options.get(QUALITY) or encoder.options[QUALITY].default or _MAX_QUALITY)
    is_lossless = LOSSLESS in encoder.options and options.get(LOSSLESS)
    lowest = highest if is_lossless else 1  # without loss, all qualities have the same size
    return best_within(lambda quality: encode({**options, QUALITY: quality}), max_bytes, highest, lowest)


def _sum_by_step(timings: Iterable[Timing]) -> Iterator[Timing]:
    """One timing per step, for steps that ran several times."""
    sums: dict[str, Timing] = {}
    for timing in timings:
        known = sums.get(timing.step)
        sums[timing.step] = replace(timing, seconds=timing.seconds + known.seconds) if known else timing
    yield from sums.values()


def _may_keep_original(plan: Plan, options: OptionValues, original: Any, decoded: Any) -> bool:
    """Whether the input can replace a larger result, because the request changes nothing but the size.

    It cannot if steps may remove metadata, unless the file is known to have none, or if its pixels are not upright.
    """
    if plan.tool or plan.source != plan.target or len(plan.conversions) != 2 or media.images(decoded) is None:
        return False
    if plan.encoder_position < len(plan.steps) - 1:  # A transform changes the file.
        return False
    if plan.source.is_complete and not plan.source.is_complete(original):  # such as a file with data after its end
        return False
    changes = (plan.options[name] for name in options if name in plan.options and name not in _BESIDE_CONTENT)
    if any(options[one.name] != one.default and not one.secret for one in changes):
        return False
    keeps_metadata = options.get(METADATA) == "all"
    if isinstance(decoded, Raster):
        return not decoded.source.turned and (keeps_metadata or decoded.source.bare)
    return keeps_metadata or METADATA not in plan.options


def run_step(step: AnyConversion | AnyTransform, payload: Any, options: OptionValues, trace: list[Timing]) -> Any:
    started = perf_counter()
    with step_errors(step):
        result = step(payload, options)
    trace.append(Timing(str(step), _stage(step), perf_counter() - started))
    if not step.target.holds(content_of(result)):
        raise StepFailed(f"The step {step} returned {type(result).__name__}, not {step.target}.")
    return result


def content_of(result: Any) -> Any:
    """What a step returned, without what it says about a file."""
    return result.data if isinstance(result, EncodedFile) else result


def _stage(step: AnyConversion | AnyTransform) -> str:
    if not isinstance(step, Conversion):
        return "convert"
    match isinstance(step.source, FileFormat), isinstance(step.target, FileFormat):
        case True, False:
            return "decode"
        case False, True:
            return "encode"
        case _:
            return "convert"
