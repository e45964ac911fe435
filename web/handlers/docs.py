"""The documentation: the guide, and the reference of the API."""

import json
from collections.abc import Mapping
from functools import partial
from html import escape
from types import MappingProxyType
from typing import Any

from tornado.escape import xhtml_escape

from config.pricing import CREDITS_PER_CONVERSION, EMAILS_PER_MAILBOX, FREE_CREDITS, MIB, TIERS
from config.settings import Settings
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, MAX_TOTAL_PIXELS
from engine.executor import JobLimits
from storage.tables.api_keys import MAX_KEYS
from storage.tables.webhooks import EVENTS
from web.api.error_catalogue import ERROR_CATALOGUE, WARNING_CATALOGUE
from web.api.errors import STATUS, InvalidParameter, envelope
from web.api.operations import Tag
from web.api.values import API
from web.handlers.pages import PUBLIC_PAGE, PageHandler
from web.http.handler import BaseHandler
from web.services.api_documents import ApiDocuments
from web.services.api_reference import Endpoint
from web.services.catalogue import format_groups
from web.services.code_samples import CLIENT_SAMPLE, COMMAND_SAMPLE, LANGUAGES, VARIABLE, Call
from web.services.job_queue import QUEUE_TIMEOUT, SHORT_DEADLINE
from web.services.job_records import PROVING_JOBS
from web.services.webhook_samples import WEBHOOK_SAMPLES

REFERENCE_PAGES: Mapping[str, tuple[str, tuple[Tag, ...]]] = MappingProxyType(
    {
        "conversions": ("Conversions and files", ("Conversion", "Files", "Batches", "Jobs")),
        "tools": ("Tools", ("PDF", "Tools")),
        "account": ("Account and service", ("Account", "Webhooks", "Credits", "Registration", "Catalogue", "Service")),
    }
)
"""The pages of the reference below /docs: title and tags of the operations."""


class DocsPage(PageHandler):
    """A page of the documentation. It lists the contents of all."""

    fixed_headers = PUBLIC_PAGE

    def write_docs(self, key: str, template: str, documents: ApiDocuments, **values: Any) -> None:
        """Responds with the rendered template, and remembers it by the key."""
        url, tags = self.services.settings.base_url, _by_tag(documents.reference)
        page_of = {tag: f"/docs/{name}" for name, (_, own) in REFERENCE_PAGES.items() for tag in own}
        to_html, escape_text = _to_html, partial(escape, quote=False)  # quotes are a tenth of the page
        common = {
            "url": url,
            "tags": tags,
            "pages": REFERENCE_PAGES,
            "page_of": page_of,
            "languages": tuple(LANGUAGES),
            "to_html": to_html,
            "escape_text": escape_text,
        }
        self.write_new_page(key, template, **common, **values)


class Docs(DocsPage):
    """The guide."""

    async def get(self) -> None:
        services, url = self.services, self.services.settings.base_url
        if self.write_known_page("docs.html"):
            return
        documents = await services.documents()
        self.write_docs(
            "docs.html",
            "docs.html",
            documents,
            variable=VARIABLE,
            quickstart=_quickstart(url),
            error_example=_error_example(),
            status=STATUS,
            errors=ERROR_CATALOGUE,
            warnings=WARNING_CATALOGUE,
            options=documents.options,
            tiers=tuple(TIERS.values()),
            mib=MIB,
            cost=CREDITS_PER_CONVERSION,
            free_credits=FREE_CREDITS,
            settings=services.settings,
            rate_limits={"free": services.settings.rate_limit_free, "paid": services.settings.rate_limit_paid},
            limits=_limits(services.settings),
            command=COMMAND_SAMPLE.format(url=url.removesuffix(API)),
            client=CLIENT_SAMPLE.format(url=url.removesuffix(API)),
            webhook_events=EVENTS,
            webhook_samples=WEBHOOK_SAMPLES,
            groups=format_groups(services.registry),
        )


class Reference(DocsPage):
    """The operations of the API that have some of the tags."""

    async def get(self, page: str) -> None:
        if self.write_known_page(page):
            return
        documents = await self.services.documents()
        names = {option.name for option in documents.options}
        have_options = _having_all(documents.reference, names)
        self.write_docs(page, "reference.html", documents, option_names=names, have_options=have_options)


def _limits(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Limits that do not depend on the tier: name and value."""
    job = JobLimits()
    return (
        ("pixels of a picture", f"{MAX_PIXELS:,}"),
        ("frames or pages of a file", f"{MAX_FRAMES}; {MAX_TOTAL_PIXELS:,} pixels in total"),
        ("duration of a conversion", f"{job.seconds:g} s, less for small PDF, SVG, EPS, PSD and RAW files"),
        ("duration of the first conversions", f"{SHORT_DEADLINE:g} s, until {PROVING_JOBS} have succeeded"),
        ("memory of a conversion", f"{job.memory >> 30} GB"),
        ("size of a result", f"{job.output // MIB} MB"),
        ("wait in the queue", f"{QUEUE_TIMEOUT:g} s"),
        ("files of a batch", str(settings.max_batch_files)),
        ("JSON body", f"{BaseHandler.max_body >> 10} kB"),
        ("API keys of an account", str(MAX_KEYS)),
        ("requests per minute without an API key", f"{settings.rate_limit_anonymous} per address"),
        ("verification emails", f"{EMAILS_PER_MAILBOX} per hour and mailbox"),
    )


def _to_html(text: str) -> str:
    """Escapes text for HTML. Words in backquotes become code."""
    parts = enumerate(xhtml_escape(text).split("`"))
    return "".join(f"<code>{part}</code>" if number % 2 else part for number, part in parts)


def _error_example() -> str:
    message, limits = "quality must be an integer from 1 to 100.", {"min": 1, "max": 100}
    error = InvalidParameter(message, reason="out_of_range", param="quality", details=limits)
    return json.dumps(envelope(error, "req_…"), indent=2, ensure_ascii=False)


def _quickstart(url: str) -> dict[str, str]:
    """Code samples of a first conversion by language."""
    form = {"output_format": "webp", "quality": "80"}
    call = Call("POST", f"{url}/convert", form, (("file", "photo.heic"),), saves="photo.webp")
    return {language: write(call) for language, write in LANGUAGES.items()}


def _having_all(endpoints: tuple[Endpoint, ...], names: set[str]) -> set[str]:
    """The ids of the endpoints that have fields of all these names."""
    return {endpoint.id for endpoint in endpoints if names <= {field.name for field in endpoint.fields}}


def _by_tag(endpoints: tuple[Endpoint, ...]) -> dict[str, list[Endpoint]]:
    tags: dict[str, list[Endpoint]] = {}
    for endpoint in endpoints:
        tags.setdefault(endpoint.tag, []).append(endpoint)
    return tags
