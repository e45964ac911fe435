"""What clients want to be answered with."""

from __future__ import annotations

import re

_JSON = "application/json"


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
