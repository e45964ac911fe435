"""The formats of which `auto` chooses, by the header Accept."""

import re

from engine.auto_format import AUTO, DEFAULT_FORMATS, FORMATS
from engine.options import OptionValues
from engine.registry import Registry

_ANY_PICTURE = "image/*"
_ZERO_WEIGHT = re.compile(r"\s*q\s*=\s*(0(\.0*)?)\s*")  # The client does not accept types with it.


def with_formats(registry: Registry, target: str, options: OptionValues, accept: str) -> OptionValues:
    """The options with the formats of which `auto` chooses, if the request does not name any.

    These are the pictures that `Accept` names, and DEFAULT_FORMATS if it names none, or `image/*`.
    """
    if target.lower() != AUTO or FORMATS.name in options:
        return options
    return {**options, FORMATS.name: ",".join(accepted_formats(registry, accept))}


def accepted_formats(registry: Registry, accept: str) -> tuple[str, ...]:
    """The names of the formats of pictures that `Accept` names, or DEFAULT_FORMATS."""
    entries = [[part.strip().lower() for part in entry.split(";")] for entry in accept.split(",")]
    refused = {name for name, *weights in entries if any(_ZERO_WEIGHT.fullmatch(weight) for weight in weights)}
    accepted = [name for name, *_ in entries if name not in refused]
    written = {target.media_type: target.name for _, target in reversed(registry.pairs())}
    named = [written[name] for name in accepted if name.startswith("image/") and name in written]
    if not named or _ANY_PICTURE in accepted:
        named += [name for name in DEFAULT_FORMATS if registry.formats[name].media_type not in refused]
    return tuple(dict.fromkeys(named)) or DEFAULT_FORMATS
