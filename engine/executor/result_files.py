"""Writes the files of a result: one as it is, several into a ZIP."""

import re
from collections.abc import Callable
from pathlib import PurePath
from time import perf_counter
from typing import IO
from zipfile import ZipFile, ZipInfo

from engine.conversions import EncodedFile
from engine.errors import StepFailed
from engine.executor import jobs
from engine.file_names import FILENAME, file_name
from engine.formats import FileFormat
from engine.media import Pictures
from engine.options import OptionValues

_RESERVED = re.compile(r'[\x00-\x1f\x7f<>:"/\\|?*]')  # not allowed in file names by some operating systems
_MAX_NAME = 100  # characters
_MODE = 0o644


class ResultWriter:
    """Verifies the files of a result and writes them to `output`: one as it is, several into a ZIP.

    `name` returns the name of a file in the ZIP, where files are stored without compression. `pictures` is what the
    verification found in each file, `check_seconds` its duration.
    """

    def __init__(
        self,
        output: IO[bytes],
        name: Callable[[EncodedFile, Pictures], str],
        verify: Callable[[EncodedFile], Pictures],
    ) -> None:
        self.pictures: list[Pictures] = []
        self.check_seconds = 0.0
        self._verify = verify
        self._name = name
        self._output = output
        self._zip: ZipFile | None = None
        self._names: set[str] = set()

    def add(self, file: EncodedFile) -> None:
        started = perf_counter()
        self.pictures.append(self._verify(file))
        self.check_seconds += perf_counter() - started
        if file.name is None:
            self._output.write(file.data)
            return
        self._zip = self._zip or ZipFile(self._output, "w")
        name = self._name(file, self.pictures[-1])
        if name in self._names:
            raise StepFailed("Two files of the result have the same name.")
        self._names.add(name)
        add_entry(self._zip, name, file.data)

    def close(self) -> int:
        """Ends the ZIP. Returns the size of the output in bytes."""
        if self._zip is not None:
            self._zip.close()
        return self._output.tell()


def add_entry(archive: ZipFile, name: str, data: bytes) -> int:
    """Adds a file without compression. Returns where its content begins in the archive."""
    entry = ZipInfo(name)
    entry.external_attr = _MODE << 16
    archive.writestr(entry, data)
    return entry.header_offset + len(entry.FileHeader())


def page_name(name: str, options: OptionValues, target: FileFormat, file: EncodedFile, pictures: Pictures) -> str:
    """The name in the ZIP of a file with a name of its own, after the input's `name`, which a template can change."""
    target, base = file.format or target, clean_name(name) or jobs.DEFAULT_NAME
    if FILENAME.name in options:
        base = clean_name(file_name(str(options[FILENAME.name]), base, target, pictures.size).rpartition(".")[0])
    return f"{base}-{clean_name(file.name or '')}.{target.extensions[0]}"


def unique_name(name: str, used: set[str]) -> str:
    """The name, with a number if it is `used` already, to which it is added."""
    path, number = PurePath(name), 1
    while name.casefold() in used:
        number += 1
        name = f"{path.stem}-{number}{path.suffix}"
    used.add(name.casefold())
    return name


def clean_name(text: str) -> str:
    """The text as a part of a file name."""
    return _RESERVED.sub("_", text.encode(errors="replace").decode()).strip(" .")[:_MAX_NAME]
