"""Mutations of files: flipped bits, overwritten, cut or repeated bytes, and parts of other files."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

_TELLING = (b"\0", b"\xff", b"\x7f", b"\x80", bytes(4), b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"<", b"%", b"%PDF-")
_HEAD = 512  # bytes at the start, where most mutations are made: headers are there


@dataclass(frozen=True)
class MutatedFile:
    """A file after mutations. Its `repr` leaves the bytes out: hypothesis refuses to print long examples."""

    original: str
    data: bytes = field(repr=False)


@st.composite
def mutated(draw: st.DrawFn, originals: dict[str, bytes]) -> MutatedFile:
    """A file after up to six mutations."""
    name = draw(st.sampled_from(sorted(originals)))
    data = bytearray(originals[name])
    for _ in range(draw(st.integers(1, 6))):
        _change(draw, data, originals)
    return MutatedFile(name, bytes(data))


def _change(draw: st.DrawFn, data: bytearray, originals: dict[str, bytes]) -> None:
    near = draw(st.booleans())
    at = draw(st.integers(0, max(0, min(len(data), _HEAD if near else len(data)) - 1)))
    match draw(st.sampled_from(("flip", "overwrite", "cut", "remove", "repeat", "join"))):
        case "flip" if data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        case "overwrite":
            text = draw(st.one_of(st.sampled_from(_TELLING), st.binary(min_size=1, max_size=8)))
            data[at : at + len(text)] = text
        case "cut" if not near:
            del data[at:]
        case "remove":
            del data[at : at + draw(st.integers(1, 64))]
        case "repeat":
            data[at:at] = data[at : at + 64] * draw(st.integers(1, 50))
        case "join":
            other = originals[draw(st.sampled_from(sorted(originals)))]
            data[at:] = other[min(at, len(other)) :]
        case _:
            pass
