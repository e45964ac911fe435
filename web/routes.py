"""The routing table: what is found where."""

from __future__ import annotations

import re
from typing import TypeAlias

from tornado.routing import URLSpec
from tornado.web import Application, RequestHandler

from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Usage
from web.handlers.batches import BatchConversion, BatchFiles, BatchResource, NewBatch
from web.handlers.conversions import Convert, DeletePages, Merge
from web.handlers.credits import Purchase, StripeWebhook
from web.handlers.dashboard import Buy, Dashboard, KeyChange, NewKey, Session, UsageTable
from web.handlers.files import Conversion, Download, FileResource, Upload
from web.handlers.pages import (
    STATIC_FOLDER,
    Docs,
    Landing,
    RegisterPage,
    StaticFile,
    StatusPage,
    VerifyPage,
    load_pages,
)
from web.handlers.registration import Register, Verify
from web.handlers.service import ApiDocument, Formats, Health, NotFoundHandler, Ready, Tools, Version
from web.handlers.simulated_checkout import CheckoutChoice, CheckoutPage
from web.http.handler import Handler
from web.http.responses import Answers
from web.services.container import Services
from web.services.serializers import API

Route: TypeAlias = tuple[str, type[Handler]]


OPERATIONS: tuple[Route, ...] = (
    (f"{API}/convert", Convert),
    (f"{API}/files/upload", Upload),
    (f"{API}/files/([^/]+)", FileResource),
    (f"{API}/files/([^/]+)/convert", Conversion),
    (f"{API}/files/([^/]+)/download", Download),
    (f"{API}/batch", NewBatch),
    (f"{API}/batch/([^/]+)", BatchResource),
    (f"{API}/batch/([^/]+)/files", BatchFiles),
    (f"{API}/batch/([^/]+)/convert", BatchConversion),
    (f"{API}/pdf/merge", Merge),
    (f"{API}/pdf/delete-pages", DeletePages),
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
    (f"{API}/tools", Tools),
    (f"{API}/openapi.json", ApiDocument),
    ("/healthz", Health),
    ("/readyz", Ready),
    ("/version", Version),
)
"""What programs call."""

PAGES: tuple[Route, ...] = (
    ("/checkout/([^/]+)", CheckoutPage),
    ("/checkout/([^/]+)/(pay|decline|cancel)", CheckoutChoice),
    ("/", Landing),
    ("/docs", Docs),
    ("/register", RegisterPage),
    ("/developers/verify", VerifyPage),
    ("/status", StatusPage),
    ("/dashboard", Dashboard),
    ("/dashboard/(sign-in|sign-out)", Session),
    ("/dashboard/keys", NewKey),
    ("/dashboard/keys/([^/]+)/(rotate|revoke)", KeyChange),
    ("/dashboard/credits", Buy),
    ("/dashboard/usage.csv", UsageTable),
)
"""What people see."""


def build(services: Services) -> Application:
    """The application."""
    arguments = {"services": services}
    return Application(
        [URLSpec(pattern, handler, arguments) for pattern, handler in (*OPERATIONS, *PAGES)],
        routes={handler: _named(pattern) for pattern, handler in (*OPERATIONS, *PAGES, ("/static/(.*)", StaticFile))},
        log_function=_log_access,
        static_path=str(STATIC_FOLDER),
        static_handler_class=StaticFile,
        static_handler_args={"services": services},
        template_loader=load_pages(),
        default_handler_class=NotFoundHandler,
        default_handler_args=arguments,
    )


def _log_access(handler: RequestHandler) -> None:
    if isinstance(handler, Answers):
        handler.log_access()


def _named(pattern: str) -> str:
    """The paths of a resource, with {} for what differs."""
    return re.sub(r"\(.*?\)", "{}", pattern)
