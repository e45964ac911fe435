"""Sales: how credits are paid for here, as the settings have it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from urllib.parse import urlsplit

from config.settings import Settings
from storage.database import Database
from web.metrics.money import MoneyMetrics
from web.services.checkout import Checkout, Provider
from web.services.loopback import is_loopback
from web.services.payments import Payments
from web.services.repeats import Repeats
from web.services.simulated_checkout import SimulatedCheckout
from web.services.stripe_checkout import StripeCheckout

log = logging.getLogger("convertd.checkout")


@dataclass(frozen=True)
class Sales:
    """The way to a checkout, what hears of payments, and the simulation where checkout is simulated."""

    checkout: Checkout
    payments: Payments
    simulation: SimulatedCheckout | None


def open_sales(settings: Settings, database: Database, repeats: Repeats, metrics: MoneyMetrics) -> Sales:
    """Sales through Stripe where there is a key, simulated ones on this machine only, or none."""
    root = settings.base_url.removesuffix("/api/v1")
    provider = _provider(settings, root)
    simulation = provider if isinstance(provider, SimulatedCheckout) else None
    if simulation:
        log.info("checkout is simulated: without Stripe keys, whoever uses this machine gets credits for nothing")
    elif provider is None:
        log.warning("credits cannot be bought: no Stripe keys are set, and the base URL is not of this machine")
    return Sales(Checkout(database, provider, root, repeats), Payments(database, provider, metrics), simulation)


def _provider(settings: Settings, root: str) -> Provider | None:
    key, secret = settings.stripe_secret_key, settings.stripe_webhook_secret
    if key is not None and secret is not None:
        secrets = tuple(part.strip() for part in secret.get_secret_value().split(",") if part.strip())
        return StripeCheckout(key.get_secret_value(), secrets, settings.stripe_api_base)
    return SimulatedCheckout(root) if is_loopback(_host(root)) else None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
