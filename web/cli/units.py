"""Values of options with units, as people type them: bytes such as 200kB, and shares such as 50%."""

import re
from collections.abc import Mapping

_SIDES = ("width", "height")
_BYTES = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?([kMG]?)(i?)B?", re.IGNORECASE)
_SHARE = re.compile(r"(?![0.]+%)(\d{1,6}(?:\.\d{1,6})?)%")


def without_units(given: Mapping[str, object]) -> tuple[dict[str, object], dict[str, float]]:
    """The options with bytes as numbers and without shares of a size, and these by name: 0.5 for 50%.

    As in other programs, 1 kB has 1000 bytes, and 1 KiB 1024.
    """
    shares = {
        name: float(found[1]) / 100 for name in _SIDES if (found := _SHARE.fullmatch(str(given.get(name, "")).strip()))
    }
    others = {name: value for name, value in given.items() if name not in shares}
    if found := _BYTES.fullmatch(str(others.get("max_bytes", "")).strip()):
        number, prefix, binary = found.groups()
        factor = (1024 if binary else 1000) ** " kmg".index(prefix.lower() or " ")
        others["max_bytes"] = str(int(float(number) * factor))
    return others, shares
