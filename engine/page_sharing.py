"""Pages of a document that several processes convert, each in a sandbox of its own.

One process leads: it converts the pages from the first to the last, and makes the result. Assistants convert pages from
the last one on. The leader takes over what they have completed and converts all other pages itself, also those that an
assistant has begun. So it never waits for an assistant, and the result is the same without one.
"""

import os
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from mmap import mmap

from engine.conversions import EncodedFile, FidelityWarning
from engine.decode_limits import MAX_FRAMES
from engine.media import Raster

TABLE_BYTES = 8 * MAX_FRAMES
"""The size of the table, whose bytes are 0 at first."""

_FREE = 0
_TAKEN = -1
_SUFFIX = 8  # bytes of the length of a record, after it


class PageSharing:
    """The pages that this process converts, as one that `leads` or as an assistant.

    Takes over the descriptors of files that the processes share. `table` has a number for each page: whether it is
    taken, or where its record ends in `results`, to which assistants append.
    """

    def __init__(self, table: int, results: int, *, leads: bool) -> None:
        self.leads = leads
        self._mapped = mmap(table, TABLE_BYTES)
        os.close(table)
        self._table = memoryview(self._mapped).cast("q")
        self._results = results

    def close(self) -> None:
        self._table.release()
        self._mapped.close()
        os.close(self._results)

    def files(self, count: int, convert: Callable[[int], EncodedFile]) -> Iterator[EncodedFile]:
        """Yields the files of all `count` pages, with their warnings; of an assistant, those that it has converted.

        `convert` returns the file of the page at an index.
        """
        for index in range(count) if self.leads else reversed(range(count)):
            place = self._table[index]
            if self.leads and place > _FREE:
                yield self._take_over(place)
            elif self.leads or place == _FREE:
                self._table[index] = _TAKEN
                yield convert(index) if self.leads else self._add(index, convert)

    def _take_over(self, end: int) -> EncodedFile:
        length = int.from_bytes(os.pread(self._results, _SUFFIX, end - _SUFFIX))
        # A process of the same account wrote it, about the same file, in the same sandbox.
        file, sizes, issued = pickle.loads(os.pread(self._results, length, end - _SUFFIX - length))
        for one in issued:
            warnings.warn(one, stacklevel=2)
        taken: EncodedFile = replace(file, encoder_input=Raster((), sizes=sizes))
        return taken

    def _add(self, index: int, convert: Callable[[int], EncodedFile]) -> EncodedFile:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            file = convert(index)
        issued = [one.message for one in caught if isinstance(one.message, FidelityWarning)]
        sizes = file.encoder_input.decoded_sizes or file.encoder_input.sizes
        record = pickle.dumps((replace(file, encoder_input=None), sizes, issued))
        record += len(record).to_bytes(_SUFFIX)
        if os.write(self._results, record) == len(record):  # otherwise the disk is full
            self._table[index] = os.lseek(self._results, 0, os.SEEK_CUR)
        return file
