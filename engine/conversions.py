"""Declarations of plugins: conversions, tools, fidelity warnings and system requirements."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, cast
from warnings import warn

from pydantic import Field

from engine.capabilities import TargetCapabilities
from engine.errors import InvalidOption, UnknownFormat
from engine.formats import AnyFormat, FileFormat, Format
from engine.options import (
    NO_OPTIONS,
    InputFile,
    Option,
    OptionValues,
    arguments,
    read_parameters,
)

QUALITY = "quality"
MAX_BYTES = "max_bytes"
LOSSLESS = "lossless"
"""Options of encoders that the pipeline reads too."""
ENCODING_OPTIONS = frozenset({QUALITY, MAX_BYTES, LOSSLESS})
"""Options that replace the encoding of the input, where a conversion into the same format keeps it."""

MaxBytes: TypeAlias = Annotated[
    int,
    Field(
        ge=1000,
        examples=[200_000],
        description="Size limit in bytes of each file; the best quality that fits, at most `quality`, is used.",
    ),
]

_MEMORY = 8.0  # bytes per pixel: an RGBA image and a copy
_TRANSFORM_MEMORY = 4.0  # bytes per pixel: an RGBA image

S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")


class Loss(IntEnum):
    """How much a step loses. The planner minimizes the sum along a path, before cost."""

    NOTHING = 0
    DETAIL = 1  # lossy encoding, RAW development, fewer colors
    STRUCTURE = 10  # text, vectors, layers or pages become pixels


class FidelityWarning(UserWarning):
    """A loss in the result: `FidelityWarning.issue("alpha_flattened", "A sentence.")`.

    With `of_original`, it also applies if the result is the original file.
    """

    def __init__(self, code: str, message: str, *, of_original: bool = False) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.of_original = of_original

    @classmethod
    def issue(cls, code: str, message: str, *, of_original: bool = False) -> None:
        """Issues the warning, which the pipeline adds to the outcome."""
        warn(cls(code, message, of_original=of_original), stacklevel=2)


Capabilities: TypeAlias = TargetCapabilities | Callable[[OptionValues], TargetCapabilities]
"""What the target of an encoder can store, or a function that returns it for the options of the encoder."""


@dataclass(frozen=True)
class Conversion(Generic[S, T]):
    """A step from one format to another; `conversion` documents the fields.

    An encoder with the option `quality` also has `max_bytes`, which the pipeline reads.
    """

    source: Format[S]
    target: Format[T]
    run: Callable[..., T]
    loss: Loss = Loss.NOTHING
    cost: float = 1.0
    terminal: bool = False
    programs: tuple[str, ...] = ()
    memory: float = _MEMORY
    isolated: bool = False
    capabilities: Capabilities | None = None
    without: tuple[str, ...] = ()
    in_dry_run: bool = False
    reduces: bool = False
    restores: bool = False
    options: Mapping[str, Option] = field(default_factory=dict, compare=False)
    groups: Mapping[str, type[Any]] = field(default_factory=dict, compare=False)
    provided: frozenset[str] = frozenset()
    chosen_by: tuple[str, ...] = ()

    def __call__(self, payload: S, options: OptionValues = NO_OPTIONS) -> T:
        """Runs the step with the options that it has; ignores others. Reduces a raster to what the target holds."""
        reduced: Any = payload
        capabilities = self.capabilities_for(options)
        if capabilities is not None:
            reduced = reduced.converted_for(capabilities)
        given = arguments(self.groups, self.options.keys() - {MAX_BYTES}, options)
        return self.run(reduced, **given, **{name: options.get(name) for name in self.provided})

    def capabilities_for(self, options: OptionValues) -> TargetCapabilities | None:
        """What the target can store with these options. None if the step does not declare it."""
        return self.capabilities(options) if callable(self.capabilities) else self.capabilities

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


AnyConversion: TypeAlias = Conversion[Any, Any]


def conversion(
    source: Format[S],
    target: Format[T],
    *,
    loss: Loss = Loss.NOTHING,
    cost: float = 1.0,
    terminal: bool = False,
    programs: tuple[str, ...] = (),
    memory: float = _MEMORY,
    isolated: bool = False,
    capabilities: Capabilities | None = None,
    without: tuple[str, ...] = (),
    in_dry_run: bool = False,
    reduces: bool = False,
    restores: bool = False,
    chosen_by: tuple[str, ...] = (),
) -> Callable[[Callable[Concatenate[S, P], T | EncodedFile]], Conversion[S, T]]:
    """Declares the decorated function as the step from `source` to `target`, which can return an EncodedFile.

    Its keyword-only parameters are its options. `cost` is the time relative to decoding a photo of the same size. A
    `terminal` step can only be the last of a path, such as one to pixels on a PDF page; so can an encoder with
    `capabilities`: pixels are not encoded to be read again. `programs` are the paths of programs the step runs; the
    sandbox allows no others. `memory` is the peak in bytes per pixel. `isolated`: the process of the step takes no
    tasks but those of its plugin's TEMPLATE and of one account, or without a TEMPLATE only one, as do plans with
    `programs`. An encoder declares what its target `holds`; the function receives a raster that is reduced to it.
    `without` are the names of options of transforms and later steps that have no effect on the payload. `in_dry_run`: a
    dry run runs the encoder, because its warnings depend on the pixels. `reduces`: the decoder uses the options of
    transforms only to decode no more pixels than they need. `restores`: the result can be a file of someone else, with
    all its bytes. Of several steps between two formats, an option chooses the one that is `chosen_by` its value, such
    as `renderer=print`.
    """

    def declare(run: Callable[Concatenate[S, P], T | EncodedFile]) -> Conversion[S, T]:
        options, groups, _, provided = read_parameters(run)
        if isinstance(target, FileFormat) and QUALITY in options:
            options[MAX_BYTES] = Option(MAX_BYTES, MaxBytes)
        return Conversion(
            source=source,
            target=target,
            run=cast(Callable[..., T], run),
            loss=loss,
            cost=cost,
            terminal=terminal or capabilities is not None,
            programs=programs,
            memory=memory,
            isolated=isolated,
            capabilities=capabilities,
            without=without,
            in_dry_run=in_dry_run,
            reduces=reduces,
            restores=restores,
            options=options,
            groups=groups,
            provided=provided,
            chosen_by=chosen_by,
        )

    return declare


@dataclass(frozen=True)
class Transform(Generic[T]):
    """A change of payloads of one format; `transform` documents the fields."""

    name: str
    format: Format[T]
    run: Callable[..., T]
    after: Transform[T] | None = None
    always: bool = False
    memory: float = _TRANSFORM_MEMORY
    isolated: bool = False
    pixels: Callable[[OptionValues, float], float] | None = None
    options: Mapping[str, Option] = field(default_factory=dict, compare=False)
    groups: Mapping[str, type[Any]] = field(default_factory=dict, compare=False)

    def __call__(self, payload: T, options: OptionValues = NO_OPTIONS) -> T:
        """Runs the transform with the options that it has; ignores others."""
        return self.run(payload, **arguments(self.groups, self.options, options))

    def __str__(self) -> str:
        return self.name

    @property
    def target(self) -> Format[T]:
        """The format of the result."""
        return self.format

    @property
    def position(self) -> int:
        """The number of transforms that it runs after, through `after`."""
        return 0 if self.after is None else self.after.position + 1

    def requested(self, options: OptionValues) -> frozenset[str]:
        """The names of its options that have another value than the default."""
        declared = self.options
        own = (name for name, option in declared.items() if name in options and not option.inherited)
        return frozenset(name for name in own if options[name] != declared[name].default)


AnyTransform: TypeAlias = Transform[Any]


def transform(
    format: Format[T],
    *,
    after: Transform[T] | None = None,
    always: bool = False,
    memory: float = _TRANSFORM_MEMORY,
    isolated: bool = False,
    pixels: Callable[[OptionValues, float], float] | None = None,
) -> Callable[[Callable[Concatenate[T, P], T | EncodedFile]], Transform[T]]:
    """Declares the decorated function as a transform of the payloads of a format.

    It runs where a path reaches the format, if one of its options has another value than its default or if it runs
    `always`, and after the transform `after` if that one runs too. Its keyword-only parameters are its options, some of
    which can be files. For a file format, it runs after the encoder, and can return an EncodedFile with the options
    that open the file.
    `memory` and `isolated` are as in `conversion`. `pixels` returns how many an image of so many has with the options.
    """

    def declare(run: Callable[Concatenate[T, P], T | EncodedFile]) -> Transform[T]:
        options, groups, _, _ = read_parameters(run)
        return Transform(
            name=run.__name__,
            format=format,
            run=cast(Callable[..., T], run),
            after=after,
            always=always,
            memory=memory,
            isolated=isolated,
            pixels=pixels,
            options=options,
            groups=groups,
        )

    return declare


@dataclass(frozen=True)
class EncodedFile:
    """A file of a result, and the payload that its encoder received.

    `name` is the name in an archive; None if the file alone is the result. `pages` is the number of pages of the result
    of a tool. `quality` is set if `max_bytes` determined it. `format` is set if a file in an archive has another format
    than the target. `secrets` are options that open the file, if they differ from the options of the request.
    `archived` is the number of files in `data` if that is a ZIP of them.
    """

    data: bytes
    encoder_input: Any = None
    name: str | None = None
    pages: int | None = None
    quality: int | None = None
    format: FileFormat | None = None
    secrets: OptionValues | None = None
    archived: int = 0


@dataclass(frozen=True)
class ToolResult(Generic[T]):
    """What a tool returns if it is more than a payload: several files, or facts of the outcome.

    `files` are pairs of a name and a payload, which can be made one after the other by a generator; they become the
    files of an archive. Without files, `payload` is the result. `facts` are values of fields of Outcome, by name.
    """

    payload: T | EncodedFile | None = None
    files: Iterable[tuple[str, T | EncodedFile]] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


RunStage: TypeAlias = Callable[[Sequence[EncodedFile], OptionValues], list[EncodedFile]]
"""Runs the tool of a stage on files, with these options where it has them and no own ones. Returns its files."""

Returned: TypeAlias = "T | EncodedFile | ToolResult[T]"
"""What a tool returns."""


@dataclass(frozen=True)
class Tool(Generic[T]):
    """An operation on payloads of one format, opened from files of the formats in `sources`.

    It also opens files that a step decodes to the format `decoded_to`; the registry sets their formats as `decoded`.
    `inputs` is the range of the number of files, `count` returns the number of pages of a payload. `run` receives the
    payload, or a list if there can be several, and may modify it. It returns a payload or a ToolResult; if the tool
    `encodes`, files instead of payloads. `files` are the additional files that it can receive, by the name of the
    parameter. `opens_with` are options of the steps that open the files; `names_parameter` receives their names.
    `isolated` and `programs` are as in `conversion`; `memory` is the peak in bytes per pixel of an image that `run`
    decodes. `provided` are values of the executor that `run` receives. `name` is its id for clients, such as
    `pdf-merge`, and `title` its name for people, who also find it by the `words`. An example of a request has the
    options that are required, and those in `example`.

    The result is a file of the format `target`, or an `archive` of such files. Its name is `output_name`, by default
    the name of the first file.
    """

    name: str
    format: Format[T]
    run: Callable[..., Returned[T]]
    sources: tuple[FileFormat, ...]
    target: FileFormat
    inputs: range
    count: Callable[[T], int] | None
    title: str
    summary: str
    isolated: bool = False
    archive: bool = False
    encodes: bool = False
    output_name: str | None = None
    programs: tuple[str, ...] = ()
    decoded_to: AnyFormat | None = None
    decoded: tuple[FileFormat, ...] = ()
    opens_with: OptionValues = field(default_factory=dict, compare=False)
    names_parameter: str | None = None
    options: Mapping[str, Option] = field(default_factory=dict, compare=False)
    groups: Mapping[str, type[Any]] = field(default_factory=dict, compare=False)
    files: Mapping[str, InputFile] = field(default_factory=dict, compare=False)
    words: str = ""
    provided: frozenset[str] = frozenset()
    example: tuple[str, ...] = ()
    memory: float = 0.0

    def __call__(
        self, payloads: list[T], options: OptionValues = NO_OPTIONS, files: Mapping[str, Any] = MappingProxyType({})
    ) -> Returned[T]:
        """Runs the tool with the options that it has, and with additional files."""
        given = {**arguments(self.groups, self.options, options), **files}
        given |= {name: options.get(name) for name in self.provided}
        return self.run(payloads if self.takes_several else payloads[0], **given)

    @property
    def operation(self) -> str:
        """The name of its runs in usage reports and metrics."""
        return self.name.replace("-", "_")

    @property
    def reads(self) -> str:
        """The kinds of files that it reads, for people: `PDF or image`."""
        named = [str(source).upper() for source in self.sources]
        return " or ".join([*named, *(["image"] if self.decoded_to else [])])

    @property
    def accepted(self) -> tuple[FileFormat, ...]:
        """The formats of all files that it reads."""
        return tuple(dict.fromkeys((*self.sources, *self.decoded)))

    @cached_property
    def stages_parameter(self) -> str | None:
        """The parameter that receives functions which run other tools."""
        return next((name for name, option in self.options.items() if option.stages), None)

    @property
    def takes_several(self) -> bool:
        """Whether the tool takes more than one file."""
        return self.inputs[-1] > 1

    def takes_any(self, name: str) -> bool:
        """Whether the parameter of this name takes files of any format."""
        return name in self.files and self.files[name].format is None

    def __str__(self) -> str:
        return self.name

    def check_files(self, given: Collection[str]) -> None:
        """Raises InvalidOption for a required additional file that is not among the given ones."""
        for name in (name for name, file in self.files.items() if file.minimum and name not in given):
            raise InvalidOption(f"{name} is missing.", reason="missing", param=name)

    def check(self, sources: Sequence[FileFormat | None]) -> None:
        """Raises InvalidOption for a wrong number of inputs, UnknownFormat for an input of another format.

        None is a file of an unknown format. `details.index` of the error is the position of the input, from 0.
        """
        if len(sources) not in self.inputs:
            minimum = self.inputs[0]
            maximum = self.inputs[-1]
            raise InvalidOption(
                f"{self} takes {minimum} to {maximum} files." if minimum < maximum else f"{self} takes {minimum} file.",
                reason="out_of_range",
                param="files[]" if self.takes_several else "file",
                details={"min": minimum, "max": maximum, "count": len(sources)},
            )
        for index, source in enumerate(sources):
            if source not in self.accepted:
                kinds = [*(one.name for one in self.sources), *(["picture"] if self.decoded_to else [])]
                raise UnknownFormat(
                    f"File {index + 1} is not {'an' if self.reads.startswith('image') else 'a'} {self.reads}.",
                    reason=f"not_a_{'_or_'.join(kinds)}",
                    details={"index": index, "input_format": source and source.name},
                )


AnyTool: TypeAlias = Tool[Any]


def tool(
    name: str,
    format: Format[T],
    *,
    title: str,
    words: str = "",
    sources: tuple[FileFormat, ...] = (),
    decoded_to: AnyFormat | None = None,
    target: FileFormat | None = None,
    count: Callable[[T], int] | None = None,
    inputs: range = range(1, 2),
    isolated: bool = False,
    archive: bool = False,
    encodes: bool = False,
    output_name: str | None = None,
    programs: tuple[str, ...] = (),
    opens_with: OptionValues = NO_OPTIONS,
    example: tuple[str, ...] = (),
    memory: float = 0.0,
) -> Callable[[Callable[..., Returned[T]]], Tool[T]]:
    """Declares the decorated function as a tool, and its keyword-only parameters as the tool's options and files.

    Its positional parameter is a payload, or a list of payloads if `inputs` allows several. At least one of `sources`
    and `decoded_to` is needed; `decoded_to` accepts the formats of all files that a step decodes to it. A tool that
    `encodes` returns files of the format `target` instead of payloads, as EncodedFile. The default of `target` is the
    first of the `sources`. The first line of the docstring describes the tool. Other parameters are as in Tool.
    """

    def declare(run: Callable[..., Returned[T]]) -> Tool[T]:
        parameters, groups, names_parameter, provided = read_parameters(run)
        files = {name: option.file for name, option in parameters.items() if option.file is not None}
        return Tool(
            name=name,
            format=format,
            run=run,
            sources=sources,
            target=target or sources[0],
            inputs=inputs,
            count=count,
            title=title,
            words=words,
            summary=(run.__doc__ or title).strip().splitlines()[0],
            isolated=isolated,
            archive=archive,
            encodes=encodes,
            output_name=output_name,
            programs=programs,
            decoded_to=decoded_to,
            opens_with=opens_with,
            names_parameter=names_parameter,
            options={name: option for name, option in parameters.items() if name not in files},
            groups=groups,
            files=files,
            provided=provided,
            example=example,
            memory=memory,
        )

    return declare


@dataclass(frozen=True)
class Requirement:
    """A system program or library that a plugin needs for some of its conversions, or for its tool `tool`."""

    name: str
    purpose: str
    install: str  # the command that installs it
    present: bool
    tool: str | None = None
