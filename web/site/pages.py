"""Pages for people: landing, registration, status, and static files."""

import json
import re
from collections.abc import Callable, Hashable, Mapping
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from time import monotonic
from types import MappingProxyType
from typing import Any, ClassVar, cast

from tornado.escape import xhtml_escape
from tornado.locale import GettextLocale
from tornado.template import DictLoader
from tornado.web import HTTPError, StaticFileHandler

from config.errors import PublicError
from config.pricing import (
    FREE_CREDITS,
    MIB,
)
from engine.conversions import AnyTool
from storage.errors import InvalidKey
from storage.tables import accounts
from storage.tables.email_verification import SIGN_IN_VALIDITY, VALIDITY
from storage.tables.jobs import Job
from web.api.error_catalogue import INFORMATION_WARNINGS
from web.api.errors import ApiError, NotFound, RegistrationClosed, public_error
from web.api.field_types import validate
from web.api.fields import RegistrationFields
from web.api.operations import Access, Route
from web.api.values import API
from web.docs.catalogue import format_groups
from web.docs.code_samples import LANGUAGES as PROGRAMMING_LANGUAGES
from web.docs.code_samples import Call
from web.docs.option_groups import MORE, OPTION_GROUPS
from web.docs.suggestions import FORMAT_WORDS, suggested_targets, target_groups
from web.http.handler import BaseHandler
from web.http.responses import TextCache, wants_html
from web.locale.languages import ENGLISH, LANGUAGES, Language, Translate, gettext_noop
from web.locale.messages import messages_of_page
from web.services.accounts.accounts import Account
from web.services.accounts.usage_report import describe_price
from web.services.container import Services
from web.services.files.files import stored_file

SIGN_IN_PATH = "/dashboard"
"""The page that requests without a session are redirected to."""

STATIC_FOLDER = Path(__file__).parents[1] / "static"
_TEMPLATES = Path(__file__).parents[1] / "pages"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
"""The content security policy of pages."""

_LINK = re.compile(r"""((?<![\w-])(?:href|src|action|formaction)=")/(?=[^/])""")
_HTML = "text/html; charset=utf-8"
_LANGUAGE_COOKIE = "convertd_language"
_YEAR = 365 * 86_400  # seconds

_FOREVER = "public, max-age=31536000, immutable"
_MEDIA_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
    ".ico": "image/vnd.microsoft.icon",
}
_ERROR_TITLES = {
    "not_found": gettext_noop("Page not found"),
    "method_not_allowed": gettext_noop("Method not allowed"),
    "rate_limit_exceeded": gettext_noop("Too many requests"),
    "not_ready": gettext_noop("The service is not ready"),
}
_TRIAL_LANGUAGES = ("curl", "Python", "JavaScript")
_PARALLEL = 4  # conversions of one page at a time
_RECENT = 5  # results on the start page
_LATEST_JOBS = 20
_PIXELS = ("image/", "video/")


class PageHandler(BaseHandler):
    """An HTML page. It loads nothing from other origins, and caches must not store it.

    Its language is that of the parameter `lang`, else of the browser's cookie, else of the account, else the one that
    the browser prefers; English, unless the page is `translated`. A link of this site that has `lang` sets the cookie
    and the language of the account.
    """

    access: ClassVar[Access] = "address"
    any_host: ClassVar[bool] = False
    translated: ClassVar[bool] = True
    fixed_headers = MappingProxyType(
        {
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "Referrer-Policy": "same-origin",  # a stricter policy would hide the origin of forms
        }
    )

    @property
    def site(self) -> str:
        """The URL of the start page, without a slash at the end."""
        return self.services.settings.base_url.removesuffix(API)

    @property
    def language(self) -> Language:
        """The language of the page."""
        if not self.translated:
            return ENGLISH
        account = self.authorization.session
        codes = (self.get_cookie(_LANGUAGE_COOKIE), account.language if account else None)
        chosen = (LANGUAGES.get(code or "") for code in codes)
        return next(filter(None, (self._asked_language, *chosen)), super().language)

    @cached_property
    def _asked_language(self) -> Language | None:
        given = self.request.query_arguments.get("lang", [b""])
        return LANGUAGES.get(given[-1].decode(errors="replace"))

    def get_user_locale(self) -> GettextLocale:
        return GettextLocale(self.language.code, self.language.catalogue)

    async def authorize(self) -> None:
        await super().authorize()
        language = self._asked_language
        sender = self.request.headers.get("Referer", "").partition("://")[2].partition("/")[0]
        if language is not None and sender == self.request.host:
            self.set_private_cookie(_LANGUAGE_COOKIE, language.code, _YEAR, path="/", samesite="Lax")
            account = await self.authorization.find_session()
            if account is not None and account.language != language.code:
                await self.services.database.run(accounts.change, account.id, language=language.code)

    def rich(self, text: str, *links: str, **values: object) -> str:
        """The HTML of a translation that has tags: `<a>`s, which lead to the `links`, `<strong>`s and `<code>`s."""
        html = text.format(**{name: xhtml_escape(str(value)) for name, value in values.items()})
        for link in links:
            target = self.base_path + link if link.startswith("/") else link
            html = html.replace("<a>", f'<a href="{xhtml_escape(target)}">', 1)
        return html

    def get_template_namespace(self) -> dict[str, Any]:
        own = {
            "language": self.language,
            "page_languages": LANGUAGES.values() if self.translated and self.request.method in ("GET", "HEAD") else (),
            "asked_language": self._asked_language,
            "number": self.language.number,
            "rich": self.rich,
            "here": self.request.path,
            "base": self.base_path,
            "site": self.site,
            "json": json,
            "operator": self.services.settings.operator,
            "signed_in": self.authorization.session,
            "registration": self.services.settings.registration,
        }
        return {**super().get_template_namespace(), **own}

    def write_page(self, template: str, **values: Any) -> None:
        """Responds with the rendered template."""
        self._set_page_headers()
        self.write(self._render_page(template, values))

    def _render_page(self, template: str, values: Mapping[str, Any]) -> bytes:
        texts = messages_of_page(template, self.language) if self.translated else {}
        return self.render_string(template, texts=texts, **values)

    def _set_page_headers(self) -> None:
        self.set_header("Content-Type", _HTML)
        self.set_header("Content-Language", self.language.code)
        if self.translated:
            self.set_header("Vary", "Accept-Language, Cookie")

    def write_known_page(self, key: Hashable) -> bool:
        """Responds with a page that was rendered with this key. Returns whether there is one."""
        if (text := self._texts.get(self._key(key))) is not None:
            self._set_page_headers()
            text.write(self)
        return text is not None

    def _key(self, key: Hashable) -> Hashable:
        return key, self.language.code, self._asked_language is None

    def write_new_page(self, key: Hashable, template: str, **values: Any) -> None:
        """Responds with the rendered template, and remembers it."""
        self._texts.add(self._key(key), self._render_page(template, values))
        self.write_known_page(key)

    @property
    def _texts(self) -> TextCache:
        return cast(TextCache, self.settings["texts"])

    def write_error_page(self, error: PublicError, template: str, **values: Any) -> None:
        """Responds with the rendered template, which shows the error, and with the error's status."""
        self.set_error(error)
        self.write_page(template, error=error, **values)

    def write_sign_in_page(self, error: PublicError | None = None, *, sent: bool = False) -> None:
        """Responds with the forms to sign in, and with the error's status. It confirms that an email was `sent`."""
        if error is not None:
            self.set_error(error)
        sends_email = self.services.email_queue.enabled
        self.write_page(
            "sign_in.html",
            error=error,
            sends_email=sends_email,
            sent=sent,
            minutes=SIGN_IN_VALIDITY // 60,
            sign_in=self.services.oidc.enabled,
        )

    async def unfinished_jobs(self, account: Account) -> list[Job]:
        """Those of the latest jobs of an account that have no result."""
        found = await self.services.jobs.list_page(account.id, limit=_LATEST_JOBS, cursor=None, status=None, tag=None)
        return [job for job in found.values if job.status not in ("completed", "cancelled")]

    def set_private_cookie(
        self, name: str, value: str, max_age: int, *, path: str = SIGN_IN_PATH, samesite: str = "Strict"
    ) -> None:
        """Sets a cookie that scripts cannot read, by default for requests of the dashboard only."""
        secure = self.services.settings.base_url.startswith("https://")
        self.set_cookie(
            name, value, path=self.base_path + path, max_age=max_age, httponly=True, samesite=samesite, secure=secure
        )

    def write_public_error(self, error: BaseException | None) -> None:
        if self.access == "session" and isinstance(error, InvalidKey):
            self.set_status(303)
            self.set_header("Location", self.base_path + SIGN_IN_PATH)
            self.set_header("Content-Length", "0")
        elif wants_html(self.request.headers.get("Accept", "")):
            public = public_error(error)
            title = _ERROR_TITLES.get(public.code, gettext_noop("The request failed"))
            self.write_error_page(public, "error.html", title=title, request_id=self.request_id)
        else:
            super().write_public_error(error)


PUBLIC_PAGE = MappingProxyType({**PageHandler.fixed_headers, "Cache-Control": "no-cache"})
"""The headers of a page that is the same for all visitors: browsers may store it."""


class WorkPage(PageHandler):
    """A page that converts: for the account that is signed in, or as trials, with a text that all visitors share."""

    fixed_headers = PUBLIC_PAGE

    async def find_access(self) -> dict[str, Any]:
        """What the scripts of the page may do, as JSON values."""
        account = await self.authorization.find_session()
        tier = account.tier if account else self.services.settings.all_plans["trial"]
        if account is not None:
            self.set_header("Cache-Control", "no-store")
        return {
            "signedIn": account is not None,
            "left": account.credits_remaining
            if account
            else await self.services.trials.remaining(self.authorization.address),
            "trials": self.services.settings.trials,
            "limit": tier.max_file_size,
            "inspectionLimit": self.services.settings.all_plans["trial"].max_file_size,
            "parallel": min(tier.max_concurrent, _PARALLEL),
        }

    def write_work_page(self, key: Hashable, template: str, make_values: Callable[[], dict[str, Any]]) -> None:
        """Responds with the rendered template, which is remembered by its key unless someone is signed in."""
        if self.authorization.session is not None:
            self.write_page(template, **make_values())
        elif not self.write_known_page((template, key)):
            self.write_new_page((template, key), template, **make_values())


class Landing(WorkPage):
    """The start page, with the form to convert files, and all tools."""

    async def get(self) -> None:
        access = await self.find_access()
        recent: dict[str, Any] = {}
        if (account := self.authorization.session) is not None:
            found = await self.services.files.list_page(account.id, processed=True, limit=_RECENT, cursor=None)
            recent["recent"] = [stored_file(file) for file in found.values]
            recent["unfinished"] = await self.unfinished_jobs(account)
        self.write_work_page(access["left"], "landing.html", lambda: self._values(access) | recent)

    def _values(self, access: dict[str, Any]) -> dict[str, Any]:
        services, url = self.services, self.services.settings.base_url
        registry, plans = services.registry, services.settings.all_plans
        default = plans[services.settings.default_plan]
        form, file = {"output_format": "webp"}, (("file", "photo.heic"),)
        example = Call("POST", f"{url}/convert", form, file, saves="photo.webp")
        targets_of = services.formats.data["by_input_format"]
        return {
            "access": access,
            "tools": sorted(registry.tools.values(), key=lambda tool: self.locale.translate(tool.title)),
            "tool_page": tool_page,
            "total": services.formats.data["total"],
            "groups": format_groups(registry),
            "formats": registry.formats,
            "catalogue": {
                "targets": targets_of,
                "extensions": {name: registry.formats[name].extensions for name in registry.formats},
                "media": {name: fmt.media_type for name, fmt in registry.formats.items()},
                "suggested": suggested_targets(registry),
                "documents": [name for name in targets_of if not registry.formats[name].media_type.startswith(_PIXELS)],
                "groups": {self.locale.translate(title): ones for title, ones in target_groups(registry).items()},
                "words": dict(FORMAT_WORDS),
                "information": sorted(INFORMATION_WARNINGS),
            },
            "samples": _trial_samples(url),
            "option_groups": option_groups(self.locale.translate),
            "example": PROGRAMMING_LANGUAGES["curl"](example),
            "packs": services.settings.packs_on_sale,
            "describe_price": describe_price,
            "free_credits": FREE_CREDITS,
            "max_mib": {"free": default.max_file_size // MIB, "paid": plans["paid"].max_file_size // MIB},
            "hours": default.file_retention_seconds / 3600,
        }


def option_groups(translate: Translate) -> list[dict[str, Any]]:
    """The groups of options, for scripts."""
    return [
        {
            "name": one.name,
            "title": translate(one.title),
            "labels": {name: translate(label) for name, label in one.labels.items()},
        }
        for one in (*OPTION_GROUPS, MORE)
    ]


def tool_page(tool: AnyTool) -> str:
    """The path of a tool's page: `pdf-merge` is at `/tools/merge-pdf`."""
    subject, _, action = tool.name.partition("-")
    return f"/tools/{action}-{subject}" if action else f"/tools/{subject}"


def _trial_samples(url: str) -> dict[str, list[tuple[str, str, str]]]:
    """Code samples of the try-it form: before the options, one option, after the options.

    The form's script replaces the words in capitals.
    """
    form, file = {"output_format": "TARGET"}, (("file", "FILE"),)
    calls = [
        Call("POST", f"{url}/convert", fields, file, headers={"Accept": "application/json"})
        for fields in (form, {**form, "OPTION": "VALUE"})
    ]
    download = Call("GET", f"{url}/files/ID/download", saves="RESULT")
    return {
        language: [_split_sample(*map(write, calls)), (write(download), "", "")]
        for language, write in PROGRAMMING_LANGUAGES.items()
        if language in _TRIAL_LANGUAGES
    }


def _split_sample(without: str, with_option: str) -> tuple[str, str, str]:
    start = next(index for index, one in enumerate(with_option) if one != without[index : index + 1])
    end = start + len(with_option) - len(without)
    return without[:start], with_option[start:end], without[start:]


class RegisterPage(PageHandler):
    """The registration form. Like POST /register."""

    access = "form"

    async def get(self) -> None:
        if self.services.settings.registration == "closed":
            raise RegistrationClosed
        self.write_page("register.html", error=None, entered={}, sent_to=None, **self._offer())

    async def post(self) -> None:
        entered = self.input.web_form()
        try:
            fields = validate(RegistrationFields, entered)
            await self.services.registrations.register(
                fields.email, fields.name, self.authorization.address, self.language
            )
        except ApiError as error:
            self.write_error_page(error, "register.html", entered=entered, sent_to=None, **self._offer())
        else:
            self.write_page(
                "register.html",
                error=None,
                sent_to=fields.email,
                sends_email=self.services.settings.smtp_url is not None,
                hours=VALIDITY // 3600,
            )

    def _offer(self) -> dict[str, Any]:
        return {"free_credits": FREE_CREDITS, "credits_rule": self.services.registrations.credits_rule}


class VerifyPage(PageHandler):
    """The page that fetches the API key. The token is in the URL's fragment, which browsers do not send."""

    async def get(self) -> None:
        self.set_header("Referrer-Policy", "no-referrer")
        self.write_page("verify.html", url=self.services.settings.base_url)


class StatusPage(PageHandler):
    """The state of the service, at most a second old."""

    fixed_headers = PUBLIC_PAGE

    async def get(self) -> None:
        key = ("status.html", int(monotonic()))
        if self.write_known_page(key):
            return
        state = await self.services.readiness.state()
        self.write_new_page(
            key,
            "status.html",
            reasons=state.reasons,
            cluster=state.cluster,
            version=version("convertd"),
            registry=self.services.registry,
            total=self.services.formats.data["total"],
            admission=self.services.admission,
            workers=self.services.admission.slots,
        )


class StaticFile(PageHandler, StaticFileHandler):
    """A file of the static folder. Browsers cache it for as long as its versioned URL is current."""

    access = "open"

    def initialize(self, services: Services, route: Route, path: str) -> None:  # type: ignore[override]
        PageHandler.initialize(self, services, route)
        StaticFileHandler.initialize(self, path)

    def compute_etag(self) -> str | None:
        return StaticFileHandler.compute_etag(self)

    def validate_absolute_path(self, root: str, absolute_path: str) -> str | None:
        try:
            return super().validate_absolute_path(root, absolute_path)
        except ValueError:  # a NUL byte, for example
            raise HTTPError(404) from None

    def set_extra_headers(self, path: str) -> None:
        current = self.get_query_argument("v", None) == self.get_version(self.settings, path)
        self.set_header("Cache-Control", _FOREVER if current else "no-cache")
        self.clear_header("Expires")

    def get_content_type(self) -> str:
        # The media types that `mimetypes` knows depend on the system.
        return _MEDIA_TYPES.get(Path(self.path).suffix) or super().get_content_type()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        if status_code in (403, 404):  # raised by Tornado: outside the folder, or no such file
            self.write_public_error(NotFound("No such file."))
        else:
            super().write_error(status_code, **kwargs)


class PageNotFound(PageHandler):
    """All other paths without a resource."""


@cache
def load_templates() -> DictLoader:
    """Compiles the templates of all pages, once per process. Reads from disk.

    Their links begin with `/`; the base path is added here, so that no link can be without it.
    """
    texts = {str(path.relative_to(_TEMPLATES)): path.read_text() for path in _TEMPLATES.rglob("*.html")}
    loader = DictLoader({name: _LINK.sub(r"\1{{ base }}/", text) for name, text in texts.items()})
    for name in texts:
        loader.load(name)
    return loader
