"""The fields of requests, each declared once."""

from __future__ import annotations

import time
from typing import Final

from config.tariff import PACKS, Pack
from engine.pages import Pages
from storage.keyring import MAX_GRACE
from web.declarations import Field, Kind, integer, matching, text
from web.errors import InvalidParameter
from web.services.periods import Period, period

_DAY = 86_400  # seconds


def _pack(name: str, value: object) -> Pack:
    found = PACKS.get(text(name, value))
    if found is None:
        message = f"{name} must be one of {', '.join(PACKS)}."
        raise InvalidParameter(message, reason="unknown", param=name, details={"available": list(PACKS)})
    return found


def _file_ids(name: str, value: object) -> tuple[str, ...]:
    """The ids in the order given; whether they exist is not asked."""
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidParameter(f"{name} must be a list of strings.", reason="malformed", param=name)
    return tuple(value)


_TEXT: Final = Kind[str]({"type": "string"}, text)

OUTPUT_FORMAT: Final = Field[str](
    "output_format",
    matching("[A-Za-z0-9]{1,20}", "the name of a format, such as jpeg"),
    "The format to convert to, in capitals or not; `jpg`, `tif` and `heif` are known too. "
    "`GET /formats` tells which there are.",
    "webp",
)
QUALITY: Final = Field[int | None](
    "quality",
    integer(1, 100),
    "How much a lossy format keeps. For a lossless one it is checked, ignored, and told in a warning.",
    80,
    default=None,
)
PASSWORD: Final = Field[str | None]("password", _TEXT, "Opens an encrypted PDF.", "secret", default=None)
PAGES: Final = Field[Pages](
    "pages",
    Kind({"type": "string", "minLength": 1}, lambda name, value: Pages.parse(text(name, value))),
    "The pages to delete, counted from 1, with commas between them; ranges such as `3-5` are taken too. "
    "One page at least has to stay.",
    "2,5,8-10",
)
FILE_IDS: Final = Field[tuple[str, ...]](
    "file_ids",
    Kind({"type": "array", "items": {"type": "string"}, "minItems": 1}, _file_ids),
    "The files of the batch to convert, all of them or some. What is named twice is converted once.",
    ["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
)
GRACE_PERIOD: Final = Field[int](
    "grace_period_seconds",
    integer(0, MAX_GRACE),
    "How many seconds the old key goes on working.",
    3600,
    default=_DAY,
)
TOKEN: Final = Field[str](
    "token",
    matching("[0-9A-Fa-f]{64}", "64 hexadecimal digits"),
    "The token in the link of the letter.",
    "0123456789abcdef" * 4,
)
PERIOD: Final = Field[Period | None](
    "period",
    Kind(
        {"type": "string", "anyOf": [{"pattern": "^[0-9]{4}-(0[1-9]|1[0-2])$"}, {"format": "date"}]},
        lambda name, value: period(text(name, value), int(time.time())),
    ),
    "A month `YYYY-MM`, or a day `YYYY-MM-DD` from which on to report; the current month by default.",
    "2026-11",
    default=None,
)
PACK: Final = Field[Pack](
    "pack", Kind({"type": "string", "enum": list(PACKS)}, _pack), "How many credits to buy.", "starter"
)
LANGUAGE: Final = Field[str | None](
    "language",
    matching("[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", "a language tag, such as en or pt-BR"),
    "The language of the checkout page; `en` by default, and where the provider does not have it.",
    "de",
    default=None,
)
IDEMPOTENCY_KEY: Final = Field[str | None](
    "Idempotency-Key",
    matching("[!-~]([ -~]{0,253}[!-~])?", "1 to 255 printable ASCII characters"),
    "Makes it safe to send the request again: within 24 hours the same request under the same key gets the same "
    "answer, and is carried out once.",
    "0b9d6c1e-5b1f-4c38-9a52-2f0f3c6a7d11",
    default=None,
)
STRIPE_SIGNATURE: Final = Field[str](
    "Stripe-Signature",
    _TEXT,
    "Shows that the event is Stripe's.",
    "t=1795238640,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd",
)
