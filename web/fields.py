"""Request values to typed values, or InvalidParameter."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

from email_validator import EmailNotValidError, validate_email

from config.tariff import PACKS, Pack
from engine.conversions import Options
from engine.pages import Pages
from web.errors import InvalidParameter

_JSON = "application/json"
_EMAIL_LENGTH = 254
_NAME_LENGTH = range(2, 101)
_CONTROL = ("Cc", "Cs", "Zl", "Zp")  # Unicode categories: surrogates cannot be stored, separators break lines


def output_format(fields: Mapping[str, object]) -> str:
    """The name of the target; whether it exists is for the registry to say."""
    name = _text(fields.get("output_format"), "output_format")
    if not re.fullmatch(r"[A-Za-z0-9]{1,20}", name):
        message = "output_format must be the name of a format, such as jpeg."
        raise InvalidParameter(message, reason="malformed", param="output_format")
    return name


def form_options(fields: Mapping[str, str]) -> Options:
    """What the client chose for the conversion, in the fields of a form."""
    text = fields.get("quality")
    number = text if text is None else _integer(text)
    pages = fields.get("pages")
    return Options(
        quality=_quality(number),
        pages=None if pages is None else Pages.parse(pages),
        password=fields.get("password"),
    )


def json_options(body: Mapping[str, object]) -> Options:
    """What the client chose for the conversion, in a JSON object."""
    password = body.get("password")
    return Options(
        quality=_quality(body.get("quality")),
        password=None if password is None else _text(password, "password"),
    )


def _quality(value: object) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    message = "quality must be an integer from 1 to 100."
    raise InvalidParameter(message, reason="not_an_integer", param="quality", details={"min": 1, "max": 100})


def _integer(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?[0-9]{1,9}", text) else text


def file_ids(body: Mapping[str, object], most: int) -> tuple[str, ...]:
    """The ids of the files to convert, each once, in the order given; whether they exist is not asked."""
    ids = body.get("file_ids")
    if ids is None:
        raise InvalidParameter("file_ids is missing.", reason="missing", param="file_ids")
    if not isinstance(ids, list) or not all(isinstance(one, str) for one in ids):
        raise InvalidParameter("file_ids must be a list of strings.", reason="malformed", param="file_ids")
    if not 1 <= len(ids) <= most:
        message = f"file_ids must name 1 to {most} files."
        raise InvalidParameter(message, reason="out_of_range", param="file_ids", details={"min": 1, "max": most})
    return tuple(dict.fromkeys(ids))


def idempotency_key(value: str | None) -> str | None:
    """The key under which the request may come again, if it has one."""
    if value is None or re.fullmatch(r"[\x20-\x7e]{1,255}", value):
        return value
    message = "Idempotency-Key must be 1 to 255 printable ASCII characters."
    raise InvalidParameter(message, reason="malformed", param="Idempotency-Key")


def email(value: object) -> str:
    """An address that mail can be sent to, its domain in lower case and ASCII; whether it exists is not asked."""
    address = _text(value, "email")
    try:
        found = validate_email(
            address.strip(" "),
            allow_smtputf8=False,
            check_deliverability=False,
            strict=True,
            test_environment=True,
        ).ascii_email
    except EmailNotValidError:
        found = None
    if found is None or len(found) > _EMAIL_LENGTH:
        raise InvalidParameter("email must be an e-mail address.", reason="malformed", param="email")
    return found


def name(value: object) -> str:
    """What a client calls its application, without blanks around it."""
    found = _text(value, "name").strip()
    if any(unicodedata.category(character) in _CONTROL for character in found):
        raise InvalidParameter("name must not hold control characters.", reason="malformed", param="name")
    if len(found) not in _NAME_LENGTH:
        least, most = _NAME_LENGTH[0], _NAME_LENGTH[-1]
        message = f"name must have {least} to {most} characters."
        raise InvalidParameter(message, reason="out_of_range", param="name", details={"min": least, "max": most})
    return found


def pack(value: object) -> Pack:
    """The pack of credits of that name."""
    found = PACKS.get(_text(value, "pack"))
    if found is None:
        message = f"pack must be one of {', '.join(PACKS)}."
        raise InvalidParameter(message, reason="unknown", param="pack", details={"available": list(PACKS)})
    return found


def language(value: object) -> str:
    """A language tag such as de or pt-BR, English where there is none; whether anybody speaks it is not asked."""
    tag = _text("en" if value is None else value, "language")
    if not re.fullmatch(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8}){0,3}", tag):
        message = "language must be a language tag, such as en or pt-BR."
        raise InvalidParameter(message, reason="malformed", param="language")
    return tag


def _text(value: object, param: str) -> str:
    if value is None:
        raise InvalidParameter(f"{param} is missing.", reason="missing", param=param)
    if not isinstance(value, str):
        raise InvalidParameter(f"{param} must be a string.", reason="malformed", param=param)
    return value


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
    plain = content_length is not None and re.fullmatch(r"[0-9]{1,4000}", content_length)
    return int(plain[0]) if plain else None
