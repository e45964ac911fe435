"""The routing table."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import TypeAlias

from tornado.routing import URLSpec
from tornado.web import Application

from web.api.operations import API, JSON_FORM, operation_of
from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Usage
from web.handlers.batches import BatchConversion, Batches, BatchFiles, BatchResource
from web.handlers.conversions import (
    Convert,
    ConvertToJson,
    DeletePages,
    DeletePagesToJson,
    Merge,
    MergeToJson,
)
from web.handlers.credits import CheckoutAction, CheckoutPage, Purchase, StripeWebhook
from web.handlers.dashboard import BuyCredits, Dashboard, KeyChange, NewKey, Receipt, Session, UsageCsv
from web.handlers.files import Download, FileConversion, FileResource, Upload
from web.handlers.pages import (
    STATIC_FOLDER,
    Docs,
    Landing,
    PageNotFound,
    RegisterPage,
    StaticFile,
    StatusPage,
    VerifyPage,
    load_templates,
)
from web.handlers.registration import Register, Verify
from web.handlers.service import Conversion, Formats, Health, NotFoundHandler, OpenApiDocument, Ready, Tools, Version
from web.handlers.trials import TryConvert, TryPreview
from web.http.handler import BaseHandler
from web.http.responses import TextCompression
from web.openapi import DocumentedOperation
from web.services.container import Services

Route: TypeAlias = tuple[str, type[BaseHandler]]
"""A regular expression of paths, and the handler."""

API_ROUTES: tuple[Route, ...] = (
    (f"{API}/convert", Convert),
    (f"{API}/convert{JSON_FORM}", ConvertToJson),
    (f"{API}/files/upload", Upload),
    (f"{API}/files/([^/]+)", FileResource),
    (f"{API}/files/([^/]+)/convert", FileConversion),
    (f"{API}/files/([^/]+)/download", Download),
    (f"{API}/batch", Batches),
    (f"{API}/batch/([^/]+)", BatchResource),
    (f"{API}/batch/([^/]+)/files", BatchFiles),
    (f"{API}/batch/([^/]+)/convert", BatchConversion),
    (f"{API}/pdf/merge", Merge),
    (f"{API}/pdf/merge{JSON_FORM}", MergeToJson),
    (f"{API}/pdf/delete-pages", DeletePages),
    (f"{API}/pdf/delete-pages{JSON_FORM}", DeletePagesToJson),
    (f"{API}/account", AccountResource),
    (f"{API}/account/usage", Usage),
    (f"{API}/account/keys", Keys),
    (f"{API}/account/keys/([^/]+)", KeyResource),
    (f"{API}/account/keys/([^/]+)/rotate", KeyRotation),
    (f"{API}/credits/purchase", Purchase),
    (f"{API}/webhooks/stripe", StripeWebhook),
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

PAGE_ROUTES: tuple[Route, ...] = (
    ("/checkout/([^/]+)", CheckoutPage),
    ("/checkout/([^/]+)/(pay|decline|cancel)", CheckoutAction),
    ("/", Landing),
    ("/docs", Docs),
    ("/register", RegisterPage),
    ("/developers/verify", VerifyPage),
    ("/status", StatusPage),
    ("/dashboard", Dashboard),
    ("/dashboard/(sign-in|sign-out)", Session),
    ("/dashboard/keys", NewKey),
    ("/dashboard/keys/([^/]+)/(rotate|revoke)", KeyChange),
    ("/dashboard/credits", BuyCredits),
    ("/dashboard/purchases/([^/]+)", Receipt),
    ("/dashboard/usage.csv", UsageCsv),
)

TRIAL_ROUTES: tuple[Route, ...] = (  # for the script of the landing page, not part of the API
    ("/try/convert", TryConvert),
    ("/try/preview", TryPreview),
)


def build_application(services: Services) -> Application:
    """The Tornado application with all routes."""
    arguments, routes = {"services": services}, (*API_ROUTES, *PAGE_ROUTES, *TRIAL_ROUTES)
    return Application(
        [URLSpec(pattern, handler, arguments) for pattern, handler in (*routes, ("/api/.*", NotFoundHandler))],
        routes={
            handler: re.sub(r"\(.*?\)", "{}", pattern) for pattern, handler in (*routes, ("/static/(.*)", StaticFile))
        },
        transforms=[TextCompression],
        log_function=lambda _handler: None,  # handlers log their requests themselves
        static_path=str(STATIC_FOLDER),
        static_handler_class=StaticFile,
        static_handler_args=dict(arguments),  # Tornado adds to it
        template_loader=load_templates(),
        default_handler_class=PageNotFound,
        default_handler_args=arguments,
    )


def documented_operations() -> Iterator[DocumentedOperation]:
    """The operations of the API, for the OpenAPI document."""
    for pattern, handler in API_ROUTES:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            operation = operation_of(handler, method)
            if operation is None:
                continue
            function = getattr(handler, method.lower())
            _, *variables = inspect.signature(function).parameters  # the path's variables, in order
            path = re.sub(r"\([^)]*\)", "{}", pattern).format(*(f"{{{variable}}}" for variable in variables))
            yield DocumentedOperation(
                method=method,
                path=path,
                variables=tuple(variables),
                operation=operation,
                access=handler.access,
                headers=tuple(handler.fixed_headers),
                documentation=inspect.getdoc(function) or "",
            )
