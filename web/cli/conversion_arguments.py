"""Values of the commands that convert files: arguments as given, and the tasks that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from engine import FileFormat, OptionValues, any_of
from engine.auto_format import AUTO

AUTO_FORMAT = FileFormat(AUTO, media_type="", extensions=(AUTO,), sniff=any_of())
"""The smallest of several formats."""

CHOSEN_LATER = FileFormat("result", media_type="", extensions=("result",), sniff=any_of())
"""The format or formats that the options `outputs` and `preset` determine."""


class UsageError(ValueError):
    """Invalid arguments; `str(error)` explains how to correct them."""


@dataclass(frozen=True)
class Arguments:
    """The arguments, as given. `overwrite`: replace existing files, keep them, or None. `url`: where the input is.

    Without an `output`, the last of the paths can be the output. `folder`: the last path ends with a slash.
    `filename`: the template of results. `chosen_later`: other options determine the results. `changes`: there are some.
    `numbered`: a result can be several files, which are numbered.
    """

    paths: Sequence[Path]
    to: Sequence[str] = ()
    source_format: str | None = None
    overwrite: bool | None = None
    url: str | None = None
    output: Path | None = None
    recursive: bool = False
    folder: bool = False
    filename: str | None = None
    chosen_later: bool = False
    changes: bool = False
    numbered: bool = False


@dataclass(frozen=True)
class ToolArguments:
    """The arguments of a tool, as given. `files` are its additional files with their names; else as in Arguments."""

    tool: str
    paths: Sequence[Path]
    output: Path
    overwrite: bool | None
    files: Sequence[tuple[str, Path]]
    folder: bool = False


@dataclass(frozen=True)
class ConversionTask:
    """A file to convert, the output format, and the output file, None for standard output.

    With a tool, `inputs` can be several files. `files` are additional files of the tool or of options, with
    their names. `label`
    names the input in messages. The format of the first input is detected by its content and its filename `name`; it
    is `source_format` if the content is not recognized. `overwrite` is whether to replace an existing output; None:
    fail. `named`: the result has its own name, in the folder of the output. `numbered` is as in Arguments. `options`
    are those that only this file has.
    """

    inputs: tuple[Path, ...]
    label: str
    name: str
    output: Path | None
    target: FileFormat
    overwrite: bool | None
    source_format: FileFormat | None = None
    tool: str | None = None
    files: Sequence[tuple[str, Path]] = ()
    url: str | None = None
    named: bool = False
    numbered: bool = False
    options: OptionValues = field(default_factory=dict)

    @property
    def known_output(self) -> Path | None:
        """The file that the result is written to, if it is one and known before the conversion."""
        is_chosen = self.named or (self.numbered and not self.archive)
        return None if is_chosen or (self.output is not None and self.output.is_dir()) else self.output

    @property
    def archive(self) -> bool:
        """Whether the output is a ZIP of the files of the result, which are otherwise written one by one."""
        return self.output is not None and self.output.suffix.lower() == ".zip"


@dataclass(frozen=True)
class SkippedFile:
    """A file of a folder that is not converted, and the reason."""

    path: Path
    reason: str
