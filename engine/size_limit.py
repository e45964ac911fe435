"""The best quality whose file is not larger than a limit."""

from collections.abc import Callable
from dataclasses import replace

from engine.conversions import MAX_BYTES, EncodedFile
from engine.errors import ConversionError


def best_within(encode: Callable[[int], EncodedFile], max_bytes: int, highest: int, lowest: int = 1) -> EncodedFile:
    """The file that `encode` makes with the best quality, from `lowest` to `highest`, that results in `max_bytes`.

    Raises ConversionError, reason `target_unreachable`.
    """
    best: EncodedFile | None = None
    smallest = 0
    while lowest <= highest:
        quality = (lowest + highest) // 2
        file = encode(quality)
        if len(file.data) <= max_bytes:
            lowest = quality + 1
            best = replace(file, quality=quality)
        else:
            highest = quality - 1
            smallest = len(file.data)
    if best is None:
        raise ConversionError(
            f"No quality results in a file of at most {max_bytes} bytes; the smallest has {smallest}.",
            reason="target_unreachable",
            param=MAX_BYTES,
            details={"max_bytes": max_bytes, "smallest": smallest},
        )
    return best
