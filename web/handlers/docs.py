"""The docs: a guide, and the reference as the OpenAPI document has it."""

from __future__ import annotations

import json

from tornado.escape import xhtml_escape

from config.tariff import CREDITS_PER_CONVERSION, FREE_CREDITS, MIB, TIERS
from web.envelopes import envelope
from web.errors import STATUS, InvalidParameter
from web.handlers.pages import PageHandler
from web.openapi.problems import PROBLEMS
from web.services.reference import Endpoint
from web.services.samples import LANGUAGES, VARIABLE, Call


class Docs(PageHandler):
    """How to use the API."""

    async def get(self) -> None:
        services, url = self.services, self.services.settings.base_url
        self.write_page(
            "docs.html",
            url=url,
            variable=VARIABLE,
            languages=tuple(LANGUAGES),
            quickstart=_quickstart(url),
            tags=_by_tag(services.reference),
            refusal=_refusal(),
            status=STATUS,
            problems=PROBLEMS,
            marked=_marked,
            tiers=tuple(TIERS.values()),
            mib=MIB,
            cost=CREDITS_PER_CONVERSION,
            free_credits=FREE_CREDITS,
            settings=services.settings,
            tools=services.tools.data["tools"],
            targets_of=services.formats.data["by_input_format"],
            lossy={name for name, fmt in services.registry.formats.items() if fmt.lossy},
        )


def _marked(text: str) -> str:
    """The text in HTML; words in backquotes are code."""
    parts = enumerate(xhtml_escape(text).split("`"))
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in parts)


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
