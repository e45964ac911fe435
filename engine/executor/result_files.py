"""Writes the files of a result: one as it is, several into a ZIP."""

from collections.abc import Callable
from time import perf_counter
from typing import IO
from zipfile import ZipFile, ZipInfo

from engine.conversions import EncodedFile
from engine.errors import StepFailed
from engine.executor import tasks
from engine.file_names import FILENAME, file_name, safe_stem
from engine.formats import FileFormat
from engine.media import Images
from engine.options import OptionValues

_MAX_PART = 100  # bytes of UTF-8, of which names in a ZIP have two
_MODE = 0o644


class ResultWriter:
    """Verifies the files of a result and writes them to `output`: one as it is, several into a ZIP.

    `name` returns the name of a file in the ZIP, where files are stored without compression. `images` is what the
    verification found in each file, `check_seconds` its duration.
    """

    def __init__(
        self,
        output: IO[bytes],
        name: Callable[[EncodedFile, Images], str],
        verify: Callable[[EncodedFile], Images],
    ) -> None:
        self.images: list[Images] = []
        self.check_seconds = 0.0
        self._verify = verify
        self._name = name
        self._output = output
        self._zip: ZipFile | None = None
        self._names: set[str] = set()

    def add(self, file: EncodedFile) -> None:
        started = perf_counter()
        self.images.append(self._verify(file))
        self.check_seconds += perf_counter() - started
        if file.name is None:
            self._output.write(file.data)
            return
        self._zip = self._zip or ZipFile(self._output, "w")
        name = self._name(file, self.images[-1])
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


def page_name(name: str, options: OptionValues, target: FileFormat, file: EncodedFile, images: Images) -> str:
    """The name in the ZIP of a file with a name of its own, after the input's `name`, which a template can change."""
    target = file.format or target
    if FILENAME.name in options:
        name = file_name(str(options[FILENAME.name]), name, target, images.size).rpartition(".")[0]
    base = safe_stem(name, _MAX_PART) or tasks.DEFAULT_NAME
    own = safe_stem(file.name or "", _MAX_PART)
    return f"{base}-{own}.{target.extensions[0]}"
