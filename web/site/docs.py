"""The documentation: its pages, which describe the API too, and its search."""

import asyncio
import json
from collections.abc import Mapping
from functools import cache, partial
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import quote

from tornado.escape import xhtml_escape

from config.pricing import CREDITS_PER_CONVERSION, DAY, EMAILS_PER_MAILBOX, FREE_CREDITS, MIB, TEST_CONVERSIONS
from config.settings import Settings
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS, MAX_TOTAL_PIXELS
from engine.executor import TaskLimits
from engine.lazy import lazy_imports
from storage.tables.api_keys import MAX_KEYS
from storage.tables.deliveries import RETENTION as DELIVERIES_RETENTION
from storage.tables.jobs import MAX_UNFINISHED
from storage.tables.presets import MAX_PRESETS
from storage.tables.webhooks import EVENTS, MAX_WEBHOOKS
from web.api.error_catalogue import ERROR_CATALOGUE, WARNING_CATALOGUE
from web.api.errors import STATUS, InvalidParameter, NotFound, envelope
from web.api.fields import MAX_ARCHIVE
from web.api.output_fields import MAX_OUTPUTS
from web.api.values import API
from web.docs.api_reference import ApiDocuments, Endpoint
from web.docs.catalogue import format_groups
from web.docs.code_samples import CLIENT_SAMPLE, COMMAND_SAMPLE, LANGUAGES, VARIABLE, WEBHOOK_SAMPLES, Call
from web.docs.docs_contents import DOCS_PAGES, DocsPage, read_entries
from web.docs.docs_search import DocsSearch, SearchResult
from web.docs.option_examples import example_images
from web.docs.option_groups import MORE, grouped
from web.docs.recipes import RECIPES
from web.http.handler import BaseHandler
from web.http.server import MAX_CONNECTIONS_PER_CLIENT
from web.services.admission.admission import QUEUE_TIMEOUT, SHORT_DEADLINE
from web.services.admission.tenant_records import PROVING_JOBS
from web.site.console import CONSOLE_PATH, console_folder
from web.site.pages import PUBLIC_PAGE, PageHandler

with lazy_imports():
    import markdown_it

_MAX_QUERY = 200  # characters
_SEARCH = DocsPage("search", "Search", "Search all pages of the documentation.")
_CHANGELOG = Path(__file__).parents[1] / "pages" / "docs" / "changelog.md"


class Docs(PageHandler):
    """A page of the documentation. It lists the contents of itself and the other pages."""

    fixed_headers = PUBLIC_PAGE
    translated = False

    def get_template_namespace(self) -> dict[str, Any]:
        return {**super().get_template_namespace(), "console": console_folder() and CONSOLE_PATH}

    async def get(self, name: str = DOCS_PAGES[0].name) -> None:
        if self.write_known_page(("docs", name)):
            return
        documents = await self.services.documents()
        pages = docs_pages(documents)
        place = next((place for place, page in enumerate(pages) if page.name == name), None)
        if place is None:
            raise NotFound("No such page.")
        body = await asyncio.to_thread(self.render_body, pages[place], documents)
        entries = await asyncio.to_thread(read_entries, body)
        self.write_new_page(
            ("docs", name),
            "docs_layout.html",
            page=pages[place],
            pages=pages,
            before=pages[place - 1] if place else None,
            after=pages[place + 1] if place + 1 < len(pages) else None,
            entries=[entry for entry in entries if entry.in_contents],
            body=body,
            languages=tuple(LANGUAGES),
        )

    def render_body(self, page: DocsPage, documents: ApiDocuments) -> str:
        """The page without the contents. Blocks for tenths of a second."""
        services, url = self.services, self.services.settings.base_url
        names = {option.name for option in documents.options}
        text = self.render_string(
            page.template,
            page=page,
            url=url,
            site=url.removesuffix(API),
            quickstart=_quickstart(url),
            job_samples=_job_samples(url),
            groups=list(grouped(documents.options)),
            operations=_by_tag(documents.reference, page),
            page_of={operation.id: _page_of(operation).path for operation in documents.reference},
            option_names=names,
            have_options=_having_all(documents.reference, names),
            formats=format_groups(services.registry),
            settings=services.settings,
            limits=_limits(services.settings),
            tiers=[
                plan for name, plan in services.settings.all_plans.items() if name in _shown_plans(services.settings)
            ],
            **_CONSTANTS,
        )
        return text.decode()


class DocsSearchPage(Docs):
    """The entries of the documentation that a query finds."""

    async def get(self) -> None:  # type: ignore[override]
        query = self.get_query_argument("q", "").strip()[:_MAX_QUERY]
        documents = await self.services.documents()
        results = await asyncio.to_thread(self._find, query, documents)
        body = self.render_string(
            _SEARCH.template, query=query, results=results, max_length=_MAX_QUERY, escape_query=quote
        )
        self.write_page(
            "docs_layout.html",
            page=_SEARCH,
            pages=docs_pages(documents),
            before=None,
            after=None,
            entries=(),
            body=body.decode(),
            languages=(),
        )

    def _find(self, query: str, documents: ApiDocuments) -> list[SearchResult]:
        """What the query finds. The first one renders all pages, for a second."""
        search = cast(DocsSearch, self.settings["docs_search"])
        if search.is_empty():
            search.fill(
                [
                    (page.path, page.title, entry.id, entry.title, entry.words, entry.text)
                    for page in docs_pages(documents)
                    for entry in read_entries(self.render_body(page, documents))
                ]
            )
        return search.find(query)


def docs_pages(documents: ApiDocuments) -> list[DocsPage]:
    """The pages of this server: the page of additional options only if it has some."""
    has_more = any(group is MORE for group, _ in grouped(documents.options))
    return [page for page in DOCS_PAGES if has_more or page.name != f"options/{MORE.name}"]


def _shown_plans(settings: Settings) -> tuple[str, ...]:
    """The plans that accounts of this server can get by themselves."""
    return tuple(dict.fromkeys([settings.default_plan, *(["paid"] if settings.packs_on_sale else [])]))


def _limits(settings: Settings) -> tuple[tuple[str, str], ...]:
    """Limits that do not depend on the tier: name and value."""
    job = TaskLimits()
    return (
        ("pixels of an image", f"{MAX_PIXELS:,}"),
        ("frames or pages of a file", f"{MAX_FRAMES}; {MAX_TOTAL_PIXELS:,} pixels in total"),
        ("duration of a conversion", f"{job.seconds:g} s"),
        ("CPU time of a conversion", f"{job.cpu:g} s, less for small PDF, SVG, EPS, PSD and RAW files"),
        ("CPU time of the first ones", f"{SHORT_DEADLINE:g} s, and more for documents, until {PROVING_JOBS} succeed"),
        ("memory of a conversion", f"{job.memory >> 30} GB"),
        ("size of a result", f"{job.output // MIB} MB"),
        ("wait in the queue", f"{QUEUE_TIMEOUT:g} s"),
        ("files of a batch", str(settings.max_batch_files)),
        ("files of a ZIP that is requested", str(MAX_ARCHIVE)),
        ("outputs of a request", str(MAX_OUTPUTS)),
        ("jobs that wait or run", str(MAX_UNFINISHED)),
        ("JSON body", f"{BaseHandler.max_body >> 10} kB"),
        ("API keys of an account", str(MAX_KEYS)),
        ("presets of an account", str(MAX_PRESETS)),
        ("webhooks of an account", str(MAX_WEBHOOKS)),
        ("messages of webhooks are kept for", f"{DELIVERIES_RETENTION // DAY} days"),
        ("connections of an address", str(MAX_CONNECTIONS_PER_CLIENT)),
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
    return _in_languages(call)


def _job_samples(url: str) -> list[dict[str, str]]:
    """Code samples that start a job, and wait for its end, by language."""
    start = {"Prefer": "respond-async"}
    calls = (
        Call("POST", f"{url}/convert", {"output_format": "webp"}, (("file", "photo.heic"),), headers=start),
        Call("GET", f"{url}/jobs/JOB_ID", headers={"Prefer": "wait=60"}),
    )
    return [_in_languages(call) for call in calls]


def _in_languages(call: Call) -> dict[str, str]:
    return {language: write(call) for language, write in LANGUAGES.items()}


def _having_all(endpoints: tuple[Endpoint, ...], names: set[str]) -> set[str]:
    """The ids of the endpoints that have fields of all these names."""
    return {endpoint.id for endpoint in endpoints if names <= {field.name for field in endpoint.fields}}


def _page_of(endpoint: Endpoint) -> DocsPage:
    return next(page for page in DOCS_PAGES if endpoint.tag in page.tags)


def _by_tag(endpoints: tuple[Endpoint, ...], page: DocsPage) -> dict[str, list[Endpoint]]:
    """The endpoints that are described on a page."""
    found = {tag: [endpoint for endpoint in endpoints if endpoint.tag == tag] for tag in page.tags}
    return {tag: ones for tag, ones in found.items() if ones}


@cache
def _changes() -> list[tuple[str, list[tuple[str, str]]]]:
    """The versions, latest first, each with the titles of its sections and their HTML. Reads from disk."""
    markdown = markdown_it.MarkdownIt("commonmark", {"html": False})
    versions: list[tuple[str, list[tuple[str, str]]]] = []
    for version in _CHANGELOG.read_text().split("\n## ")[1:]:
        number, _, text = version.partition("\n")
        first, *sections = text.split("\n### ")
        parts = [("", first), *((title, body) for title, _, body in (part.partition("\n") for part in sections))]
        versions.append((number, [(title, markdown.render(body)) for title, body in parts if body.strip()]))
    return versions


_CONSTANTS: Mapping[str, Any] = MappingProxyType(
    {
        "variable": VARIABLE,
        "test_conversions": TEST_CONVERSIONS,
        "error_example": _error_example(),
        "status": STATUS,
        "errors": ERROR_CATALOGUE,
        "warnings": WARNING_CATALOGUE,
        "mib": MIB,
        "cost": CREDITS_PER_CONVERSION,
        "free_credits": FREE_CREDITS,
        "command": COMMAND_SAMPLE,
        "client": CLIENT_SAMPLE,
        "recipes": RECIPES,
        "webhook_events": EVENTS,
        "webhook_samples": WEBHOOK_SAMPLES,
        "changes": _changes,
        "example_images": example_images,
        "to_html": _to_html,
        "escape_text": partial(escape, quote=False),  # quotes are a tenth of the page
    }
)
