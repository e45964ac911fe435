"""Formats of files and of payloads in memory, and their detection from bytes."""

import codecs
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import wraps
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")


class Content(Protocol):
    """The bytes of a file, read when sliced: `bytes` or `mmap.mmap`."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: slice, /) -> bytes: ...


class SniffedContent:
    """The content of a file, which keeps what `once_per_file` has found out about it."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self.found: dict[Callable[..., Any], Any] = {}

    def __len__(self) -> int:
        return len(self._content)

    def __getitem__(self, index: slice) -> bytes:
        return self._content[index]


def once_per_file(function: Callable[[Content], T]) -> Callable[[Content], T]:
    """A decorator for what the sniffers of several formats need, so that it is found out once for each file."""

    @wraps(function)
    def call(content: Content) -> T:
        if not isinstance(content, SniffedContent):
            return function(content)
        if function not in content.found:
            content.found[function] = function(content)
        found: T = content.found[function]
        return found

    return call


Sniffer: TypeAlias = Callable[[Content], int]
"""Returns the number of bytes of a file that match a format; 0 if the file has another format."""

MAX_SCORE = 64
"""The largest number of bytes that a sniffer may return."""


@dataclass(frozen=True)
class Format(Generic[T]):
    """A format of payloads between two steps.

    `payload` is the type in memory, or the full name of a type that is imported late: "pymupdf.Document". `lazy`: the
    file is parsed when the payload is used, so that a failure of a step that receives it is one of the file.
    `partial`: files hold more, so that no path leads over it back to the format of a file, unless that is text.
    """

    name: str
    payload: type[T] | str
    lazy: bool = False
    partial: bool = False

    def holds(self, payload: object) -> bool:
        """Whether `payload` is an instance of the format's type."""
        if isinstance(self.payload, str):
            return self.payload in (f"{kind.__module__}.{kind.__qualname__}" for kind in type(payload).__mro__)
        return isinstance(payload, self.payload)

    def __hash__(self) -> int:
        return hash(self.name)  # cheaper than all fields: formats are dictionary keys in hot paths

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FileFormat(Format[bytes]):
    """A format of files. The first extension is used for downloads; all are aliases of the name.

    `text_extensions` are for formats of text, which the content need not show: a file of text whose name has one of
    them has the format, unless its content matches another one. "" is for names without extension.

    `is_complete` is False for a truncated file, which is refused as a result and, with `must_be_complete`, as an input.
    """

    payload: type[bytes] = field(default=bytes, init=False)
    _: KW_ONLY
    media_type: str
    extensions: tuple[str, ...]
    sniff: Sniffer = field(repr=False)
    text_extensions: tuple[str, ...] = ()
    lossy: bool = False  # quality applies
    animated: bool = False  # animations can be written
    paged: bool = False  # several pages can be written
    bytes_per_pixel: float = 0.1  # in a well compressed file
    is_complete: Callable[[Content], bool] | None = field(default=None, repr=False)
    must_be_complete: bool = False  # decoders do not notice what is missing

    __hash__ = Format.__hash__

    def match(self, content: Content, extension: str) -> tuple[int, bool]:
        """How well the file matches: a score of its content, 0 for another format, and whether its name matches.

        Raises ValueError if the sniffer returns no score, and what it raises.
        """
        score = self.sniff(content)
        if not isinstance(score, int) or not 0 <= score <= MAX_SCORE:
            raise ValueError(f"{score!r:.60} is no number of bytes from 0 to {MAX_SCORE}")
        if extension in self.text_extensions and is_text(content):
            return max(score, 1), True
        return score, extension in self.extensions


AnyFormat: TypeAlias = Format[Any]

UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
NO_TEXT = re.compile(r"[\x00-\x06\x0e-\x1a\x1c-\x1f\x7f]")
"""Control characters, without those that file(1) counts as text."""
_TEXT_HEAD = 1 << 16  # bytes of a file that are read to find out whether it is text


def is_text(content: Content) -> bool:
    """Whether the file begins as text that `decode_text` may read."""
    head = content[:_TEXT_HEAD]
    encoding = "utf-16" if head.startswith(UTF_16_MARKS) else "latin-1"
    return not NO_TEXT.search(head.decode(encoding, "ignore"))


class Pattern(NamedTuple):
    """Alternatives of bytes at places of a file, and the score of one that has them, or the sniffer that returns it."""

    places: tuple[tuple[slice, tuple[bytes, ...]], ...]
    score: int | Sniffer

    def can_begin_with(self, byte: bytes) -> bool:
        """Whether files with this first byte can match."""
        return all(place.start or byte.startswith(tuple(one[:1] for one in magics)) for place, magics in self.places)


class Declared(ABC):
    """A sniffer that declares bytes of a short part of the file, so that they are compared in the server.

    Of its `patterns` that match, the highest score counts. A pattern can have a Declared as its score.
    """

    patterns: tuple[Pattern, ...]

    @abstractmethod
    def __call__(self, content: Content) -> int:
        """The score of a file; 0 if it has another format."""


def patterns_of(sniffer: Sniffer) -> tuple[Pattern, ...]:
    """The patterns that a sniffer declares: any file matches a function, which has to read it."""
    return sniffer.patterns if isinstance(sniffer, Declared) else (Pattern((), sniffer),)


class Signature(Declared):
    """A sniffer for fixed bytes at fixed offsets: `Signature((0, b"II*\\0"), (8, b"CR"))` scores 6 or 0.

    A part can have alternatives, of which the shortest counts: `(8, (b"qt  ", b"isom"))`. If the bytes match and `then`
    is set, `then`, a sniffer that reads more of the file, returns the score.
    """

    def __init__(self, *parts: tuple[int, bytes | tuple[bytes, ...]], then: Sniffer | None = None) -> None:
        several = [(offset, magic if isinstance(magic, tuple) else (magic,)) for offset, magic in parts]
        self._places = tuple((slice(offset, offset + max(map(len, magics))), magics) for offset, magics in several)
        self._score: int | Sniffer = then or sum(min(map(len, magics)) for _, magics in several)
        continued = patterns_of(then) if then else (Pattern((), self._score),)
        self.patterns = tuple(Pattern(self._places + more.places, more.score) for more in continued)

    def __call__(self, content: Content) -> int:
        for place, magics in self._places:
            if not content[place].startswith(magics):
                return 0
        return self._score if isinstance(self._score, int) else self._score(content)


class Contains(Declared):
    """A sniffer for bytes anywhere in the first `within` bytes of a file: 1, less than any signature, or 0."""

    def __init__(self, marker: bytes, within: int) -> None:
        self.patterns = (Pattern((), self),)
        self._marker = marker
        self._within = within

    def __call__(self, content: Content) -> int:
        return int(self._marker in content[: self._within])


_CONTAINERS = frozenset({b"mif1", b"mif2", b"msf1"})
_MAX_HEADER = 1 << 16  # bytes that are searched for the types of images


class Brands(Declared):
    """A sniffer for ISO base media files (HEIF, AVIF): 12 for a matching major brand, 8 for a compatible one.

    6 for a file with images of the type `item` that has only brands of containers for any codec.
    """

    def __init__(self, *brands: str, item: str) -> None:
        self.patterns = (Pattern(((slice(4, 8), (b"ftyp",)),), self),)
        self._brands = frozenset(brand.encode() for brand in brands)
        self._item = item.encode()

    def __call__(self, content: Content) -> int:
        if content[4:8] != b"ftyp":
            return 0
        if content[8:12] in self._brands:
            return 12
        end = min(int.from_bytes(content[:4], "big"), 512)
        compatible = {content[offset : offset + 4] for offset in range(16, end, 4)}
        if compatible & self._brands:
            return 8
        is_container = not _CONTAINERS.isdisjoint({content[8:12], *compatible})
        return 6 if is_container and self._item in content[:_MAX_HEADER] else 0


def ends_with(marker: bytes) -> Callable[[Content], bool]:
    """An `is_complete` for files that end with `marker`, optionally followed by whitespace."""
    return lambda content: content[-len(marker) - 16 :].rstrip().endswith(marker)


def boxes_are_complete(content: Content) -> bool:
    """An `is_complete` for ISO base media files: the last box ends at the end of the file."""
    offset = 0
    while offset < len(content):
        size = int.from_bytes(content[offset : offset + 4], "big")
        if size == 1:
            size = int.from_bytes(content[offset + 8 : offset + 16], "big")
        if size < 8:
            return size == 0  # 0: the box extends to the end of the file
        offset += size
    return offset == len(content)


class AnyOf(Declared):
    """A sniffer that returns the highest score of several; 0 without any, for a format that no content shows."""

    def __init__(self, *sniffers: Sniffer) -> None:
        self._sniffers = sniffers
        self.patterns = tuple(chain.from_iterable(map(patterns_of, sniffers)))

    def __call__(self, content: Content) -> int:
        return max((sniffer(content) for sniffer in self._sniffers), default=0)


def any_of(*sniffers: Sniffer) -> Sniffer:
    """A sniffer that returns the highest score of several; 0 without any, for a format that no content shows."""
    return AnyOf(*sniffers)


ANY_FILE: Final = FileFormat("file", media_type="application/octet-stream", extensions=("bin",), sniff=any_of())
"""The format of a file that a tool takes as it is."""
