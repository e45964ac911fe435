"""Pages for people: where they begin, register, and come by their key."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from tornado.escape import xhtml_escape
from tornado.template import Loader
from tornado.web import StaticFileHandler

from config.pricing import CREDITS_PER_CONVERSION, CURRENCY, FREE_CREDITS, MIB, PACKS, TIERS
from storage.email_verification import VALIDITY
from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.errors import STATUS, ApiError, InvalidParameter, NotFound, PublicError, envelope, public_error
from web.api.fields import EMAIL, NAME
from web.http.bodies import WebForm
from web.http.handler import UncountedHandler
from web.services.api_reference import Endpoint
from web.services.code_samples import LANGUAGES, VARIABLE, Call
from web.services.container import Services

STATIC_FOLDER = Path(__file__).parents[1] / "static"
_TEMPLATES = Path(__file__).parents[1] / "pages"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_FOREVER = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
_TRIED = ("curl", "Python", "JavaScript")


class PageHandler(UncountedHandler):
    """A page for people, made of what this server has and of nothing from elsewhere."""

    always = MappingProxyType(
        {
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-store",
            "Referrer-Policy": "same-origin",  # with less, browsers do not say where a form comes from
        }
    )

    def get_template_namespace(self) -> dict[str, Any]:
        return {
            **super().get_template_namespace(),
            "here": self.request.path,
            "json": json,
        }

    def write_page(self, template: str, **values: Any) -> None:
        """Answers with the page of that template."""
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.write(self.render_string(template, **values))

    def write_refusal(self, error: PublicError, template: str, **values: Any) -> None:
        """Answers with the page of that template, which says what is wrong, and with the status of the error."""
        self.mark(error)
        self.write_page(template, error=error, **values)

    def write_problem(self, error: BaseException | None) -> None:
        if "text/html" in self.request.headers.get("Accept", ""):
            self.write_refusal(public_error(error), "error.html", request_id=self.request_id)
        else:
            super().write_problem(error)


class FormPage(PageHandler, WebForm):
    """A page that takes forms, from itself only. Requests are counted by address."""

    async def admit(self) -> None:
        if self.request.method == "POST" and not self._is_from_here():
            raise InvalidParameter("This form was sent from another site.", reason="cross_site", param="Origin")
        await self.count_address()

    def _is_from_here(self) -> bool:
        site = self.request.headers.get("Sec-Fetch-Site")
        if site is not None:
            return site == "same-origin"
        base = urlsplit(self.services.settings.base_url)
        ours = (f"{self.request.protocol}://{self.request.host}", f"{base.scheme}://{base.netloc}")
        return self.request.headers.get("Origin") in ours


class Landing(PageHandler):
    """What convertd does, to be tried."""

    async def get(self) -> None:
        registry, url = self.services.registry, self.services.settings.base_url
        photo, form = (("file", "photo.heic"),), {"output_format": "webp"}
        example = Call("POST", f"{url}/convert", form, photo, saves="photo.webp")
        self.write_page(
            "landing.html",
            targets_of=self.services.formats.data["by_input_format"],
            total=self.services.formats.data["total"],
            formats=registry.formats,
            samples=_trial(url),
            example=LANGUAGES["curl"](example),
            packs=tuple(PACKS.values()),
            currency=CURRENCY,
            free_credits=FREE_CREDITS,
            max_mib={name: tier.max_file_size // MIB for name, tier in TIERS.items()},
            hours=self.services.settings.file_retention_seconds / 3600,
        )


def _trial(url: str) -> dict[str, list[tuple[str, str]]]:
    """The requests of a trial, each with quality and without; its script puts what was chosen for words in capitals."""
    lossless, file = {"output_format": "TARGET"}, (("file", "FILE"),)
    lossy = {**lossless, "quality": "QUALITY"}
    converts = [Call("POST", f"{url}/convert", form, file, accept="application/json") for form in (lossy, lossless)]
    download = Call("GET", f"{url}/files/ID/download", saves="RESULT")
    return {
        language: [(write(converts[0]), write(converts[1])), (write(download), write(download))]
        for language, write in LANGUAGES.items()
        if language in _TRIED
    }


class RegisterPage(FormPage):
    """Asks for a letter, as POST /register does."""

    async def get(self) -> None:
        self.write_page("register.html", error=None, entered={}, sent_to=None, free_credits=FREE_CREDITS)

    async def post(self) -> None:
        entered = self.entered()
        try:
            address, application = EMAIL.of_text(entered.get("email")), NAME.of_text(entered.get("name"))
            await self.services.registrations.register(address, application, self._address)
        except ApiError as error:
            self.write_refusal(error, "register.html", entered=entered, sent_to=None, free_credits=FREE_CREDITS)
        else:
            mails, hours = self.services.settings.smtp_url is not None, VALIDITY // 3600
            self.write_page("register.html", error=None, sent_to=address, mails=mails, hours=hours)


class VerifyPage(PageHandler):
    """Where the link of a letter leads a browser. The token is in the fragment, which browsers keep to themselves."""

    async def get(self) -> None:
        self.set_header("Referrer-Policy", "no-referrer")
        self.write_page("verify.html", url=self.services.settings.base_url)


class StatusPage(PageHandler):
    """What works here now."""

    async def get(self) -> None:
        state = await self.services.readiness.state()
        self.write_page(
            "status.html",
            reasons=state.reasons,
            version=version("convertd"),
            registry=self.services.registry,
            total=self.services.formats.data["total"],
            job_queue=self.services.job_queue,
            workers=self.services.settings.workers,
        )


class StaticFile(PageHandler, StaticFileHandler):
    """A file of the static folder. Browsers keep it for as long as its versioned URL is current."""

    def initialize(self, services: Services, path: str) -> None:  # type: ignore[override]
        PageHandler.initialize(self, services)
        StaticFileHandler.initialize(self, path)

    def compute_etag(self) -> str | None:
        return StaticFileHandler.compute_etag(self)

    def set_extra_headers(self, path: str) -> None:
        current = self.get_query_argument("v", None) == self.get_version(self.settings, path)
        self.set_header("Cache-Control", _FOREVER if current else "no-cache")
        self.clear_header("Expires")

    def get_content_type(self) -> str:
        # The media types that `mimetypes` knows depend on the system.
        return _MEDIA_TYPES.get(Path(self.path).suffix) or super().get_content_type()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        if status_code in (403, 404):  # of Tornado's handler: outside the folder, or no file
            self.write_problem(NotFound("No such file."))
            self.finish()
        else:
            super().write_error(status_code, **kwargs)


def load_pages() -> Loader:
    """The compiled templates of all pages. Reads from disk."""
    loader = Loader(str(_TEMPLATES))
    for path in _TEMPLATES.glob("*.html"):
        loader.load(path.name)
    return loader


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
            problems=ERROR_CATALOGUE,
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
