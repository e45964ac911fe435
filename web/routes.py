"""The routing table: what is found where."""

from __future__ import annotations

import re
from typing import Any

from tornado.routing import URLSpec
from tornado.web import Application

from web.assets import load_pages
from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Usage
from web.handlers.batches import BatchConversion, BatchFiles, BatchResource, NewBatch
from web.handlers.catalogue import Formats, Tools
from web.handlers.checkout import CheckoutChoice, CheckoutPage
from web.handlers.convert import Convert
from web.handlers.credits import Purchase, StripeWebhook
from web.handlers.dashboard import Buy, Dashboard, KeyChange, NewKey, Session, UsageTable
from web.handlers.docs import Docs
from web.handlers.files import Conversion, Download, FileResource, Upload
from web.handlers.pages import Asset, Landing, RegisterPage, StatusPage, VerifyPage
from web.handlers.pdf import DeletePages, Merge
from web.handlers.registration import Register, Verify
from web.handlers.status import Health, Nothing, Ready, Version
from web.services import Services
from web.services.paths import API


def build(services: Services) -> Application:
    """The application."""
    arguments = {"services": services}
    specs = [*_api(arguments), *_pages(arguments), *_probes(arguments)]
    return Application(
        specs,
        routes={spec.handler_class: _pattern(spec) for spec in specs},
        template_loader=load_pages(),
        default_handler_class=Nothing,
        default_handler_args=arguments,
    )


def _pattern(spec: URLSpec) -> str:
    """The paths of a resource, with {} for what differs."""
    return re.sub(r"\(.*?\)", "{}", spec.regex.pattern.removesuffix("$"))


def _api(arguments: dict[str, Any]) -> list[URLSpec]:
    return [
        URLSpec(f"{API}/convert", Convert, arguments),
        URLSpec(f"{API}/files/upload", Upload, arguments),
        URLSpec(f"{API}/files/([^/]+)", FileResource, arguments),
        URLSpec(f"{API}/files/([^/]+)/convert", Conversion, arguments),
        URLSpec(f"{API}/files/([^/]+)/download", Download, arguments),
        URLSpec(f"{API}/batch", NewBatch, arguments),
        URLSpec(f"{API}/batch/([^/]+)", BatchResource, arguments),
        URLSpec(f"{API}/batch/([^/]+)/files", BatchFiles, arguments),
        URLSpec(f"{API}/batch/([^/]+)/convert", BatchConversion, arguments),
        URLSpec(f"{API}/pdf/merge", Merge, arguments),
        URLSpec(f"{API}/pdf/delete-pages", DeletePages, arguments),
        URLSpec(f"{API}/account", AccountResource, arguments),
        URLSpec(f"{API}/account/usage", Usage, arguments),
        URLSpec(f"{API}/account/keys", Keys, arguments),
        URLSpec(f"{API}/account/keys/([^/]+)", KeyResource, arguments),
        URLSpec(f"{API}/account/keys/([^/]+)/rotate", KeyRotation, arguments),
        URLSpec(f"{API}/register", Register, arguments),
        URLSpec(f"{API}/verify", Verify, arguments),
        URLSpec(f"{API}/formats", Formats, arguments),
        URLSpec(f"{API}/tools", Tools, arguments),
        URLSpec(f"{API}/credits/purchase", Purchase, arguments),
        URLSpec(f"{API}/webhooks/stripe", StripeWebhook, arguments),
    ]


def _pages(arguments: dict[str, Any]) -> list[URLSpec]:
    return [
        URLSpec("/checkout/([^/]+)", CheckoutPage, arguments),
        URLSpec("/checkout/([^/]+)/(pay|decline|cancel)", CheckoutChoice, arguments),
        URLSpec("/", Landing, arguments),
        URLSpec("/docs", Docs, arguments),
        URLSpec("/register", RegisterPage, arguments),
        URLSpec("/developers/verify", VerifyPage, arguments),
        URLSpec("/status", StatusPage, arguments),
        URLSpec("/dashboard", Dashboard, arguments),
        URLSpec("/dashboard/(sign-in|sign-out)", Session, arguments),
        URLSpec("/dashboard/keys", NewKey, arguments),
        URLSpec("/dashboard/keys/([^/]+)/(rotate|revoke)", KeyChange, arguments),
        URLSpec("/dashboard/credits", Buy, arguments),
        URLSpec("/dashboard/usage.csv", UsageTable, arguments),
        URLSpec("/static/([^/]+)/([^/]+)", Asset, arguments),
    ]


def _probes(arguments: dict[str, Any]) -> list[URLSpec]:
    return [
        URLSpec("/healthz", Health, arguments),
        URLSpec("/readyz", Ready, arguments),
        URLSpec("/version", Version, arguments),
    ]
