"""Request values to typed values, or InvalidParameter."""

from __future__ import annotations

import re
from collections.abc import Mapping

from engine.conversions import Options
from web.errors import InvalidParameter

_JSON = "application/json"


def output_format(fields: Mapping[str, str]) -> str:
    """The name of the target; whether it exists is for the registry to say."""
    name = fields.get("output_format")
    if name is None:
        raise InvalidParameter("output_format is missing.", reason="missing", param="output_format")
    if not re.fullmatch(r"[A-Za-z0-9]{1,20}", name):
        message = "output_format must be the name of a format, such as jpeg."
        raise InvalidParameter(message, reason="malformed", param="output_format")
    return name


def options(fields: Mapping[str, str]) -> Options:
    """What the client chose for the conversion."""
    text = fields.get("quality")
    if text is None:
        return Options()
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        message = "quality must be an integer from 1 to 100."
        details = {"min": 1, "max": 100}
        raise InvalidParameter(message, reason="not_an_integer", param="quality", details=details)
    return Options(quality=int(text))


def wants_json(accept: str) -> bool:
    """Whether an Accept header names JSON, and no other concrete type more dearly."""
    json_weight, other_weight = 0.0, 0.0
    for entry in accept.lower().split(","):
        media_type, *parameters = (part.strip() for part in entry.split(";"))
        weight = _weight(parameters)
        if media_type == _JSON:
            json_weight = max(json_weight, weight)
        elif "*" not in media_type:
            other_weight = max(other_weight, weight)
    return json_weight > 0 and json_weight >= other_weight


def _weight(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            # What is no weight counts for nothing.
            return float(value) if re.fullmatch(r"\s*(0(\.\d*)?|1(\.0*)?)\s*", value, re.ASCII) else 0.0
    return 1.0


def declared_length(content_length: str | None) -> int | None:
    """The bytes that a request announces; None where it does not say, or says nonsense."""
    plain = content_length is not None and re.fullmatch(r"[0-9]{1,18}", content_length)
    return int(plain[0]) if plain else None
