"""The routing table: what is found where."""

from __future__ import annotations

from tornado.routing import URLSpec
from tornado.web import Application

from web.handlers.account import AccountResource, KeyResource, KeyRotation, Keys, Usage
from web.handlers.batches import BatchConversion, BatchFiles, BatchResource, NewBatch
from web.handlers.catalogue import Formats, Tools
from web.handlers.checkout import CheckoutChoice, CheckoutPage
from web.handlers.convert import Convert
from web.handlers.credits import Purchase, StripeWebhook
from web.handlers.files import Conversion, Download, FileResource, Upload
from web.handlers.pages import VerifyPage
from web.handlers.pdf import DeletePages, Merge
from web.handlers.registration import Register, Verify
from web.handlers.status import Health, Nothing, Ready, Version
from web.services import Services
from web.services.paths import API


def build(services: Services) -> Application:
    """The application."""
    with_services = {"services": services}
    return Application(
        [
            URLSpec(f"{API}/convert", Convert, with_services),
            URLSpec(f"{API}/files/upload", Upload, with_services),
            URLSpec(f"{API}/files/([^/]+)", FileResource, with_services),
            URLSpec(f"{API}/files/([^/]+)/convert", Conversion, with_services),
            URLSpec(f"{API}/files/([^/]+)/download", Download, with_services),
            URLSpec(f"{API}/batch", NewBatch, with_services),
            URLSpec(f"{API}/batch/([^/]+)", BatchResource, with_services),
            URLSpec(f"{API}/batch/([^/]+)/files", BatchFiles, with_services),
            URLSpec(f"{API}/batch/([^/]+)/convert", BatchConversion, with_services),
            URLSpec(f"{API}/pdf/merge", Merge, with_services),
            URLSpec(f"{API}/pdf/delete-pages", DeletePages, with_services),
            URLSpec(f"{API}/account", AccountResource, with_services),
            URLSpec(f"{API}/account/usage", Usage, with_services),
            URLSpec(f"{API}/account/keys", Keys, with_services),
            URLSpec(f"{API}/account/keys/([^/]+)", KeyResource, with_services),
            URLSpec(f"{API}/account/keys/([^/]+)/rotate", KeyRotation, with_services),
            URLSpec(f"{API}/register", Register, with_services),
            URLSpec(f"{API}/verify", Verify, with_services),
            URLSpec(f"{API}/formats", Formats, with_services),
            URLSpec(f"{API}/tools", Tools, with_services),
            URLSpec(f"{API}/credits/purchase", Purchase, with_services),
            URLSpec(f"{API}/webhooks/stripe", StripeWebhook, with_services),
            URLSpec("/checkout/([^/]+)", CheckoutPage, with_services),
            URLSpec("/checkout/([^/]+)/(pay|decline|cancel)", CheckoutChoice, with_services),
            URLSpec("/developers/verify", VerifyPage, with_services),
            URLSpec("/healthz", Health, with_services),
            URLSpec("/readyz", Ready, with_services),
            URLSpec("/version", Version, with_services),
        ],
        default_handler_class=Nothing,
        default_handler_args=with_services,
    )
