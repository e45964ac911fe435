"""The docs: a guide, and the reference as the OpenAPI document has it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType

from config.tariff import CREDITS_PER_CONVERSION, FREE_CREDITS, MIB, TIERS
from web.envelopes import envelope
from web.errors import STATUS, InvalidParameter
from web.handlers.pages import PageHandler
from web.services.reference import Endpoint, endpoints
from web.services.samples import LANGUAGES, VARIABLE, Call

ADVICE: Mapping[str, str] = MappingProxyType(
    {
        "invalid_api_key": "Send a key that works as `Authorization: Bearer …`. A lost one is replaced by registering "
        "with the same address.",
        "key_not_verified": "Open the link in the letter that came when you registered.",
        "rate_limit_exceeded": "Wait for as many seconds as `Retry-After` says. With the reason `queue_full` more is "
        "being converted than there is room for; less at a time comes through.",
        "no_credits": "Buy a pack. `details` tells the balance and what was needed.",
        "invalid_file_type": "The content decides, not the name. `reason` tells an empty file, one of no known format, "
        "and a PDF that needs the field `password`.",
        "file_too_large": "`reason` tells whether it has too many bytes, pixels, frames or pages; `details` the limit.",
        "unsupported_conversion": "`details.available` lists what this format can be converted to.",
        "processing_failed": "`corrupt_input` and `engine_error` fail again, whatever you do. After `timeout`, "
        "`out_of_memory` and `worker_crashed` another attempt may do better. Nothing is charged.",
        "invalid_parameter": "`param` names the field, and `reason` what is wrong with it.",
        "not_found": "The path is wrong, or the file or batch is gone: they are kept for a limited time.",
        "server_error": "It is not your doing. Try again later, and tell us the `request_id`.",
        "method_not_allowed": "The header `Allow` lists what the path answers to.",
        "idempotency_conflict": "The first request with this key still runs. Send it again in a moment.",
        "idempotency_key_reused": "Take a new key for another file or other parameters.",
        "range_not_satisfiable": "The file ends before the part that `Range` asks for.",
        "request_timeout": "The request came too slowly. Send it over a better line, or in smaller files.",
        "not_ready": "The server starts, stops, or cannot work. Another may answer; try again.",
    }
)
"""What to do about an error of each code. Words in backquotes are code."""


class Docs(PageHandler):
    """How to use the API."""

    async def get(self) -> None:
        services, url = self.services, self.services.settings.base_url
        described = endpoints(services.openapi, url)
        self.write_page(
            "docs.html",
            url=url,
            variable=VARIABLE,
            languages=tuple(LANGUAGES),
            quickstart=_quickstart(url),
            tags=_by_tag(described),
            refusal=_refusal(),
            status=STATUS,
            advice=ADVICE,
            tiers=tuple(TIERS.values()),
            mib=MIB,
            cost=CREDITS_PER_CONVERSION,
            free_credits=FREE_CREDITS,
            settings=services.settings,
            tools=services.tools.data["tools"],
            targets_of=services.formats.data["by_input_format"],
            lossy={name for name, fmt in services.registry.formats.items() if fmt.lossy},
        )


def _refusal() -> str:
    """An error as it is answered."""
    message, bounds = "quality must be an integer from 1 to 100.", {"min": 1, "max": 100}
    error = InvalidParameter(message, reason="out_of_range", param="quality", details=bounds)
    return json.dumps(envelope(error, "req_…"), indent=2, ensure_ascii=False)


def _quickstart(url: str) -> dict[str, str]:
    """The first conversion, in every language."""
    form = {"output_format": "webp", "quality": "80"}
    call = Call("POST", f"{url}/convert", form, (("file", "photo.heic"),), saves="photo.webp")
    return {language: write(call) for language, write in LANGUAGES.items()}


def _by_tag(described: tuple[Endpoint, ...]) -> dict[str, list[Endpoint]]:
    tags: dict[str, list[Endpoint]] = {}
    for endpoint in described:
        tags.setdefault(endpoint.tag, []).append(endpoint)
    return tags
