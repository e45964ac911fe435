"""The routing table."""

import inspect
import re
from collections.abc import Iterator
from typing import TypeAlias, get_args

from tornado.routing import URLSpec
from tornado.web import Application

from engine.registry import Registry
from web.api.operations import JSON_FORM, Route, Tag, operations_of, tool_operation, tool_path
from web.api.values import API
from web.docs.docs_contents import DOCS_PAGES
from web.docs.docs_search import DocsSearch
from web.docs.openapi import DocumentedOperation
from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Register, Usage, Verify
from web.handlers.agents import Agents
from web.handlers.conversions import (
    CANCEL_PATH,
    CancelConversion,
    Convert,
    Inspect,
    RunTool,
    TryConvert,
    TryIdentify,
    TryPreview,
    TryTool,
)
from web.handlers.credits import CheckoutAction, CheckoutPage, Purchase, StripeWebhook
from web.handlers.downloads import BatchArchive, Download, FileLinks, FilesArchive, LinkedDownload
from web.handlers.files import (
    BatchConversion,
    Batches,
    BatchFiles,
    BatchResource,
    FileConversion,
    FileResource,
    StoredFiles,
    Upload,
)
from web.handlers.jobs import EventStream, JobResource, Jobs
from web.handlers.presets import PresetResource, Presets
from web.handlers.service import (
    ApiRoot,
    Conversion,
    Formats,
    Health,
    NotFoundHandler,
    OpenApiDocument,
    OpenApiRedirect,
    Ready,
    Tools,
    Version,
)
from web.handlers.webhooks import (
    OwnSecret,
    Redelivery,
    WebhookDeliveries,
    WebhookResource,
    WebhookRotation,
    Webhooks,
    WebhookTest,
)
from web.http.handler import BaseHandler
from web.http.responses import HeaderNames, TextCache, TextCompression
from web.metrics.conversions import OTHER
from web.services.accounts.changes import SIGN_IN_LINK
from web.services.accounts.oidc import CALLBACK_PATH
from web.services.container import Services
from web.site.admin import ADMIN_PATH, AdminAccount, AdminChange, AdminInvitation, AdminPage
from web.site.console import CONSOLE_PATH, Console, ConsoleFile, console_folder
from web.site.dashboard import BuyCredits, Dashboard, DeleteAccount, KeyChange, NewKey, PersonalData, Receipt, UsageCsv
from web.site.dashboard_files import ChosenFiles, FileDownload, FilePreview, FilesPage
from web.site.dashboard_jobs import EndForm, JobsPage, ResultDownload
from web.site.dashboard_webhooks import NewWebhook, OwnSecretAction, RedeliveryAction, WebhookAction, WebhooksPage
from web.site.docs import Docs, DocsSearchPage
from web.site.pages import (
    STATIC_FOLDER,
    Landing,
    PageNotFound,
    RegisterPage,
    StaticFile,
    StatusPage,
    VerifyPage,
    load_templates,
)
from web.site.sign_in import OidcCallback, OidcStart, Session, SignInEmail, SignInLink
from web.site.site_files import LlmsText, Manifest, PostmanCollection, SecurityText, Sitemap
from web.site.tools import ToolPage

Resource: TypeAlias = tuple[str, type[BaseHandler]]
"""A regular expression of paths, and the handler."""

API_RESOURCES: tuple[Resource, ...] = (
    (f"{API}/convert", Convert),
    (f"{API}/convert/inspect", Inspect),
    (f"{API}/files", StoredFiles),
    (f"{API}/files/upload", Upload),
    (f"{API}/files/zip", FilesArchive),
    (f"{API}/files/([^/]+)", FileResource),
    (f"{API}/files/([^/]+)/convert", FileConversion),
    (f"{API}/files/([^/]+)/download", Download),
    (f"{API}/files/([^/]+)/links", FileLinks),
    (f"{API}/links/([^/]+)", LinkedDownload),
    (f"{API}/batch", Batches),
    (f"{API}/batch/([^/]+)", BatchResource),
    (f"{API}/batch/([^/]+)/files", BatchFiles),
    (f"{API}/batch/([^/]+)/convert", BatchConversion),
    (f"{API}/batch/([^/]+)/download", BatchArchive),
    (f"{API}/jobs", Jobs),
    (f"{API}/jobs/([^/]+)", JobResource),
    (f"{API}/jobs/([^/]+)/events", EventStream),
    (f"{API}/account", AccountResource),
    (f"{API}/account/usage", Usage),
    (f"{API}/account/keys", Keys),
    (f"{API}/account/keys/([^/]+)", KeyResource),
    (f"{API}/account/keys/([^/]+)/rotate", KeyRotation),
    (f"{API}/credits/purchase", Purchase),
    (f"{API}/presets", Presets),
    (f"{API}/presets/([^/]+)", PresetResource),
    (f"{API}/webhooks", Webhooks),
    (f"{API}/webhooks/stripe", StripeWebhook),
    (f"{API}/webhooks/secret", OwnSecret),
    (f"{API}/webhooks/([^/]+)", WebhookResource),
    (f"{API}/webhooks/([^/]+)/rotate", WebhookRotation),
    (f"{API}/webhooks/([^/]+)/test", WebhookTest),
    (f"{API}/webhooks/([^/]+)/deliveries", WebhookDeliveries),
    (f"{API}/webhooks/deliveries/([^/]+)/redeliver", Redelivery),
    (f"{API}/register", Register),
    (f"{API}/verify", Verify),
    (f"{API}/formats", Formats),
    (f"{API}/formats/([A-Za-z0-9]{{1,20}})/([A-Za-z0-9]{{1,20}})", Conversion),
    (f"{API}/tools", Tools),
    (f"{API}/openapi.json", OpenApiDocument),
    ("/healthz", Health),
    ("/readyz", Ready),
    ("/version", Version),
)

PAGE_RESOURCES: tuple[Resource, ...] = (
    ("/checkout/([^/]+)", CheckoutPage),
    ("/checkout/([^/]+)/(pay|decline|cancel)", CheckoutAction),
    ("/", Landing),
    ("/docs", Docs),
    (f"/docs/({'|'.join(page.name for page in DOCS_PAGES[1:])})", Docs),
    ("/docs/search", DocsSearchPage),
    ("/register", RegisterPage),
    ("/developers/verify", VerifyPage),
    ("/tools/([a-z0-9-]{1,80})", ToolPage),
    ("/sitemap.xml", Sitemap),
    ("/postman.json", PostmanCollection),
    ("/.well-known/security.txt", SecurityText),
    ("/llms.txt", LlmsText),
    ("/manifest.webmanifest", Manifest),
    ("/status", StatusPage),
    ("/dashboard", Dashboard),
    ("/dashboard/(sign-in|sign-out)", Session),
    ("/dashboard/sign-in-email", SignInEmail),
    (SIGN_IN_LINK, SignInLink),
    ("/dashboard/oidc", OidcStart),
    (CALLBACK_PATH, OidcCallback),
    (ADMIN_PATH, AdminPage),
    (f"{ADMIN_PATH}/invite", AdminInvitation),
    (f"{ADMIN_PATH}/accounts/([^/]+)", AdminAccount),
    (f"{ADMIN_PATH}/accounts/([^/]+)/(set|grant|delete)", AdminChange),
    ("/dashboard/data.json", PersonalData),
    ("/dashboard/delete", DeleteAccount),
    ("/dashboard/keys", NewKey),
    ("/dashboard/keys/([^/]+)/(rotate|revoke)", KeyChange),
    ("/dashboard/files", FilesPage),
    ("/dashboard/files/(zip|delete)", ChosenFiles),
    ("/dashboard/files/([^/]+)/download", FileDownload),
    ("/dashboard/files/([^/]+)/preview", FilePreview),
    ("/dashboard/jobs", JobsPage),
    ("/dashboard/jobs/([^/]+)/(cancel|delete)", EndForm),
    ("/dashboard/jobs/([^/]+)/download", ResultDownload),
    ("/dashboard/webhooks", WebhooksPage),
    ("/dashboard/webhooks/new", NewWebhook),
    ("/dashboard/webhooks/secret", OwnSecretAction),
    ("/dashboard/webhooks/([^/]+)/(rotate|test|delete)", WebhookAction),
    ("/dashboard/webhooks/deliveries/([^/]+)/redeliver", RedeliveryAction),
    ("/dashboard/credits", BuyCredits),
    ("/dashboard/purchases/([^/]+)", Receipt),
    ("/dashboard/usage.csv", UsageCsv),
)

# Present where Swagger UI is installed.
CONSOLE_RESOURCES: tuple[Resource, ...] = (
    (CONSOLE_PATH, Console),
    (r"/swagger-ui/(swagger-ui\.css|swagger-ui-bundle\.js)", ConsoleFile),
)

# The scripts of pages use these, and /try/tools/ for each tool. They are not part of the API.
TRIAL_RESOURCES: tuple[Resource, ...] = (
    ("/try/convert", TryConvert),
    ("/try/identify", TryIdentify),
    ("/try/preview", TryPreview),
    (CANCEL_PATH, CancelConversion),
)


# What leads to the API, and other names: no operations of it.
FURTHER_RESOURCES: tuple[Resource, ...] = (
    ("/livez", Health),
    ("/mcp", Agents),
    (f"{API}/?", ApiRoot),
    ("/openapi.json", OpenApiRedirect),
)


def build_application(services: Services) -> Application:
    """The Tornado application with all routes."""
    console = CONSOLE_RESOURCES if console_folder() else ()
    pages = [
        (pattern, handler, _route(pattern, handler, services.registry))
        for pattern, handler in (*PAGE_RESOURCES, *console, *TRIAL_RESOURCES, *FURTHER_RESOURCES)
    ]
    for tool in services.registry.tools.values():
        path = f"/try/tools/{tool.name}"
        operation = tool_operation(tool).with_options(services.registry)
        pages.append((path, TryTool, Route(path, {"POST": operation.for_page()})))
    routes = [*api_routes(services.registry), *pages, ("/api/.*", NotFoundHandler, Route(OTHER))]
    return Application(
        [URLSpec(pattern, handler, {"services": services, "route": route}) for pattern, handler, route in routes],
        transforms=[TextCompression, HeaderNames],
        log_function=lambda _handler: None,  # handlers log their requests themselves
        static_path=str(STATIC_FOLDER),
        static_handler_class=StaticFile,
        static_handler_args={"services": services, "route": Route("/static/{}")},
        template_loader=load_templates(),
        texts=TextCache(),
        docs_search=DocsSearch(),
        default_handler_class=PageNotFound,
        default_handler_args={"services": services, "route": Route(OTHER)},
    )


def api_routes(registry: Registry) -> Iterator[tuple[str, type[BaseHandler], Route]]:
    """The routes of the API. Operations whose response can be a file or JSON have a second path, for JSON only."""
    for pattern, handler in API_RESOURCES:
        route = _route(pattern, handler, registry)
        yield pattern, handler, route
        yield from _json_routes(pattern, handler, route)
    for tool in registry.tools.values():
        operations = {"POST": tool_operation(tool).with_options(registry)}
        for path in dict.fromkeys((tool_path(tool), f"/tools/{tool.name}")):
            route = Route(API + path, operations)
            yield API + path, RunTool, route
            yield from _json_routes(API + path, RunTool, route)


def _route(pattern: str, handler: type[BaseHandler], registry: Registry) -> Route:
    operations = {method: one.with_options(registry) for method, one in operations_of(handler).items()}
    return Route(re.sub(r"\([^()]*\)", "{}", pattern), operations)


def _json_routes(
    pattern: str, handler: type[BaseHandler], route: Route
) -> Iterator[tuple[str, type[BaseHandler], Route]]:
    path = route.label.removeprefix(API)
    twins = {method: one.as_json(path) for method, one in route.operations.items() if one.negotiated}
    if twins:
        yield pattern + JSON_FORM, handler, Route(route.label + JSON_FORM, twins)


def documented_operations(registry: Registry) -> list[DocumentedOperation]:
    """The operations of the API by tag, for the OpenAPI document. A tool is documented at one of its paths."""
    order = get_args(Tag)
    return sorted(_operations(registry), key=lambda documented: order.index(documented.operation.tag))


def _operations(registry: Registry) -> Iterator[DocumentedOperation]:
    seen: set[str] = set()
    for pattern, handler, route in api_routes(registry):
        for method, operation in route.operations.items():
            if operation.id in seen:
                continue
            seen.add(operation.id)
            _, *variables = inspect.signature(getattr(handler, method.lower())).parameters  # in the order of the path
            yield DocumentedOperation(
                method=method,
                path=re.sub(r"\([^()]*\)", "{}", pattern).format(*(f"{{{variable}}}" for variable in variables)),
                variables=tuple(variables),
                operation=operation,
                access=handler.access,
                headers=tuple(handler.fixed_headers),
            )
