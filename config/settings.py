"""Settings: read from CONVERTD_* variables and a TOML file, checked, and reported without secrets.

Unknown names are errors: a misspelt security setting would have no effect.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails

from config.control_groups import usable_cpus
from config.pricing import DAY, DEFAULT_PACKS, DEFAULT_PLANS, Pack, Plan, PlanChanges

ENV_PREFIX = "CONVERTD_"
TOML_VARIABLE = "CONVERTD_CONFIG"

_OTHER_VARIABLES = frozenset(  # the configuration file, the client and the tests use them
    {TOML_VARIABLE, "CONVERTD_API_KEY", "CONVERTD_URL", "CONVERTD_TEST_CORPUS"}
)
MASK = "***"
"""The text that is reported in place of secrets."""
_MAX_PORT = 65_535
_PASSWORD = re.compile(r"(?<=://)([^/@]*?)(:[^/]*)?@")  # greedy: a password may contain @
_QUERY = re.compile(r"\?.*", re.DOTALL)

Network: TypeAlias = IPv4Network | IPv6Network


def variable(field: str) -> str:
    """Returns the name of the environment variable for a field."""
    return ENV_PREFIX + field.upper()


class SettingsError(ValueError):
    """Invalid settings. `str(error)` lists all of them, one per line."""


def _parts(value: object) -> object:
    """Splits a comma-separated string. Returns other values, such as a list, unchanged."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def _networks(value: object) -> object:
    """Parses addresses and networks from a comma-separated string or a list."""
    parts = _parts(value)
    if not isinstance(parts, list | tuple):
        return value
    return tuple(ip_network(str(part).strip(), strict=False) for part in parts)


def _tables(value: object) -> object:
    """Reads tables from JSON, which a variable has. Returns other values unchanged."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value or "{}")
    except ValueError:
        raise ValueError("must be a table of the TOML file, or JSON") from None


def _base_url(value: str) -> str:
    url = value.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?/api/v1", url):
        raise ValueError("must be an http or https URL ending in /api/v1")
    return url


def is_loopback(host: str | None) -> bool:
    """Whether a host name or address is this machine's loopback. Resolves no names."""
    text = (host or "").strip("[]").lower()
    try:
        address = ip_address(text)
    except ValueError:
        return text == "localhost"
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


def _secret_url(*schemes: str) -> AfterValidator:
    """Validates a URL with one of these schemes. The message omits the URL, which may contain a password."""

    def check(value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            valid = parts.scheme in schemes and bool(
                parts.path if parts.scheme in ("unix", "sqlite", "file") else parts.hostname
            )
            valid = valid and parts.port != 0 and not (parts.scheme == "file" and parts.netloc)
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"must be a URL starting with {' or '.join(f'{name}://' for name in schemes)}")
        return value

    return AfterValidator(check)


def _http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", value):
        raise ValueError("must be an http or https URL")
    return value.rstrip("/")


def _issuer(value: str) -> str:
    url = _http_url(value)
    if not url.startswith("https://") and not is_loopback(urlsplit(url).hostname):
        raise ValueError("must be an https URL, unless it is on this machine")
    return url


def scheduler_address(value: str) -> str:
    """Returns the address of a scheduler. Raises ValueError if it is not one."""
    address = re.fullmatch(r"(tcp|tls)://[^/\s?#@]+:(\d{1,5})", value)
    if address is None or not 0 < int(address[2]) <= _MAX_PORT:
        raise ValueError("must be the address of a Dask scheduler, such as tcp://scheduler:8786")
    return value


def _stripe_key(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[sr]k_\w+", value.get_secret_value(), re.ASCII):
        raise ValueError("must be a secret or restricted Stripe key, starting with sk_ or rk_")
    return value


def _sender(value: str) -> str:
    # Most commands do not need these.
    from email.errors import HeaderParseError  # noqa: PLC0415
    from email.headerregistry import Address  # noqa: PLC0415
    from email.utils import getaddresses  # noqa: PLC0415

    try:
        ((name, address),) = getaddresses([value])
        valid = value.isprintable() and address.isascii() and bool(address and Address(name, addr_spec=address).domain)
    except (ValueError, HeaderParseError):  # also ValueError if there are several
        valid = False
    if not valid:
        raise ValueError("must be an email address, with or without a name, such as: convertd <no-reply@example.org>")
    return value


def _contact(value: str) -> str:
    if not re.fullmatch(r"[^@\s]+@[^@\s]+\.[^@\s]+|https?://\S+", value):
        raise ValueError("must be an email address or an http or https URL")
    return value


PlanName: TypeAlias = Annotated[str, Field(pattern="^[a-z][a-z0-9_-]{0,29}$")]
Port: TypeAlias = Annotated[int, Field(ge=1, le=_MAX_PORT)]
Networks: TypeAlias = Annotated[tuple[Network, ...], BeforeValidator(_networks)]
Url: TypeAlias = Annotated[str, AfterValidator(_http_url)]


@dataclass(frozen=True)
class Operator:
    """Who runs the service, as far as it is set. `contact` is an email address or a URL; `address` has one line."""

    name: str | None
    address: str | None
    contact: str | None
    terms_url: str | None
    privacy_url: str | None
    vat_id: str | None
    source_url: str | None

    @property
    def contact_url(self) -> str | None:
        """The contact as a link."""
        return f"mailto:{self.contact}" if self.contact and "@" in self.contact.partition("/")[0] else self.contact

    @property
    def signature(self) -> str:
        """The lines at the end of emails; empty if nothing is set."""
        return "\n".join(filter(None, (self.name, self.address, self.contact)))


class Settings(BaseModel):
    """All settings. Each field is CONVERTD_<FIELD> in the environment, which takes precedence over the TOML file."""

    # Checks are built when there is something to check: a command without any setting does not wait for them.
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    data_dir: Path = Path("data")  # database, files and outbox
    base_url: Annotated[str, AfterValidator(_base_url)] = "http://localhost:8000/api/v1"  # as seen by clients
    database_url: Annotated[SecretStr, _secret_url("sqlite", "postgresql")] | None = None  # None: SQLite in data_dir
    rate_limit_free: int = Field(60, ge=1)  # requests per minute and account
    rate_limit_paid: int = Field(300, ge=1)
    rate_limit_anonymous: int = Field(60, ge=1)  # requests per minute and IP address
    redis_url: Annotated[SecretStr, _secret_url("redis", "rediss", "unix")] | None = None  # None: per process
    smtp_url: Annotated[SecretStr, _secret_url("smtp", "smtps")] | None = None  # None: <data_dir>/outbox
    mail_from: Annotated[str, AfterValidator(_sender)] = "convertd <no-reply@localhost>"
    workers: int = Field(default_factory=usable_cpus, ge=1)  # concurrent conversions
    jobs_per_process: int = Field(1000, ge=1)  # conversions of one account in a worker process
    templates_ahead: bool = True  # libraries of all formats are loaded after the start; otherwise with their first file
    metrics_port: int = Field(9464, ge=0, le=_MAX_PORT)  # 0: off
    metrics_address: Annotated[str, AfterValidator(lambda value: str(ip_address(value)))] = "127.0.0.1"
    sandbox: Literal["required", "best_effort", "off"] = "best_effort"
    trusted_proxies: Networks = ()
    public_addresses: Networks = ()  # by which others reach the servers, besides those of their interfaces
    url_allow: Networks = ()  # reached besides public addresses
    url_deny: Networks = ()  # not reached, as private ones
    url_ports: Annotated[tuple[Port, ...], BeforeValidator(_parts)] = ()  # allowed at public addresses; empty: all
    egress_proxy: Annotated[SecretStr, _secret_url("http", "https")] | None = None  # None: connections are direct
    log_format: Literal["text", "json"] = "text"
    work_space_mib: int = Field(2048, ge=8)  # uploads and results in progress on the disk
    file_retention_seconds: int = Field(DAY, ge=1)
    store_timeout: int = Field(6, ge=1)  # seconds
    blob_url: Annotated[SecretStr, _secret_url("s3", "file")] | None = None  # None: data_dir
    cluster: Annotated[str, AfterValidator(scheduler_address)] | None = None  # None: conversions run on this machine
    cluster_insecure: bool = False  # a cluster on other machines without TLS
    max_batch_files: int = Field(50, ge=1, le=1000)
    plans: Annotated[dict[PlanName, PlanChanges], BeforeValidator(_tables)] = {}  # what differs from the defaults
    default_plan: str = Field("free", validate_default=True)  # of accounts without a plan of their own
    packs: Annotated[dict[PlanName, Pack], BeforeValidator(_tables)] = dict(DEFAULT_PACKS)  # {}: nothing is sold
    registration: Literal["open", "invite", "closed"] = "open"
    registration_domains: Annotated[tuple[str, ...], BeforeValidator(_parts)] = ()  # of email addresses; empty: all
    oidc_issuer: Annotated[str, AfterValidator(_issuer)] | None = None  # None: no sign-in with OpenID Connect
    oidc_client_id: str | None = Field(None, validate_default=True)
    oidc_client_secret: SecretStr | None = None  # None: a public client
    oidc_admin_group: str | None = None  # members of it are admins, others who sign in there are not
    trials: int = Field(5, ge=0, le=1000)  # conversions without an API key, per address and day
    stripe_secret_key: Annotated[SecretStr, AfterValidator(_stripe_key)] | None = None
    stripe_webhook_secret: SecretStr | None = Field(None, validate_default=True)  # comma-separated during rotation
    stripe_api_base: Annotated[str, AfterValidator(_http_url)] = "https://api.stripe.com"
    operator_name: str | None = None
    operator_address: str | None = None
    operator_contact: Annotated[str, AfterValidator(_contact)] | None = None
    operator_terms_url: Url | None = None
    operator_privacy_url: Url | None = None
    operator_vat_id: str | None = None
    operator_source_url: Url | None = None
    mailbox_credits_once: bool = False  # free credits for one account of a mailbox a day
    simulated_checkout: bool = False  # credits for free, with a code that is logged at the start

    @field_validator("stripe_webhook_secret")
    @classmethod
    def _requires_stripe_key(cls, value: SecretStr | None, info: ValidationInfo) -> SecretStr | None:
        # With the key alone, payments would never be credited.
        key = info.data.get("stripe_secret_key", value)
        has_secret = value is not None and bool(value.get_secret_value().strip(", "))
        if (value is not None and not has_secret) or (key is None) != (value is None):
            raise ValueError(f"must be set if and only if {ENV_PREFIX}STRIPE_SECRET_KEY is set")
        return value

    @field_validator("simulated_checkout")
    @classmethod
    def _requires_local_use(cls, value: bool, info: ValidationInfo) -> bool:
        if value and info.data.get("stripe_secret_key") is not None:
            raise ValueError(f"must not be set together with {ENV_PREFIX}STRIPE_SECRET_KEY")
        if value and not is_loopback(urlsplit(info.data.get("base_url", "")).hostname):
            raise ValueError(f"requires a {ENV_PREFIX}BASE_URL on this machine, such as http://localhost:8000/api/v1")
        return value

    @field_validator("oidc_client_id")
    @classmethod
    def _requires_issuer(cls, value: str | None, info: ValidationInfo) -> str | None:
        if (value is None) != (info.data.get("oidc_issuer", value) is None):
            raise ValueError(f"must be set if and only if {ENV_PREFIX}OIDC_ISSUER is set")
        return value

    @field_validator("default_plan")
    @classmethod
    def _is_a_plan(cls, value: str, info: ValidationInfo) -> str:
        names = {**DEFAULT_PLANS, **info.data.get("plans", {value: None})}
        if value not in names:
            raise ValueError(f"must be one of {', '.join(names)}")
        return value

    @cached_property
    def all_plans(self) -> Mapping[str, Plan]:
        """All plans by name. The older settings for rates and retention are limits that plans can change."""
        rates = {"free": self.rate_limit_free, "paid": self.rate_limit_paid, "trial": self.rate_limit_free}
        found = {}
        for name in {**DEFAULT_PLANS, **self.plans}:
            plan = DEFAULT_PLANS.get(name, replace(DEFAULT_PLANS["paid"], name=name))
            rate = rates.get(name, self.rate_limit_paid)
            plan = replace(plan, requests_per_minute=rate, file_retention_seconds=self.file_retention_seconds)
            found[name] = plan.changed(self.plans.get(name, PlanChanges()))
        return found

    @property
    def packs_on_sale(self) -> Mapping[str, Pack]:
        """The packs that clients can buy; none without a payment provider."""
        return self.packs if self.stripe_secret_key is not None or self.simulated_checkout else {}

    @property
    def operator(self) -> Operator:
        """Who runs the service."""
        values = {name: getattr(self, f"operator_{name}") for name in Operator.__dataclass_fields__}
        return Operator(**values)

    @property
    def base_path(self) -> str:
        """The path below which everything is served, such as "/convert"; empty if that is the root."""
        return urlsplit(self.base_url).path.removesuffix("/api/v1")

    def resolved_database_url(self) -> str:
        """Returns `database_url`, or by default the URL of a SQLite file in `data_dir`. Contains the password."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir.absolute() / 'convertd.db'}"

    def masked_database_url(self) -> str:
        """Returns the URL of the database with its password masked."""
        return _without_password(self.resolved_database_url())

    def at_port(self, port: int) -> Settings:
        """Returns the settings with the base URL of a local server on this port, unless a base URL was set."""
        if "base_url" in self.model_fields_set or port == 0:
            return self
        return self.model_copy(update={"base_url": f"http://localhost:{port}/api/v1"})


def load_settings() -> Settings:
    """Reads the settings of this process. Raises SettingsError with all errors."""
    file = os.environ.get(TOML_VARIABLE)
    if file and not Path(file).is_file():
        raise SettingsError(f"{TOML_VARIABLE} names a file that does not exist: {file}")
    try:
        given = {**_read_toml(Path(file)), **_environment()} if file else _environment()
        return Settings.model_validate(given) if given else Settings.model_construct()
    except ValidationError as error:
        # Without values: some settings are secrets.
        lines = [f"  {name}: {message}" for name, message in dict(map(_error_message, error.errors())).items()]
        raise SettingsError("\n".join(["Invalid settings:", *lines])) from None
    except ValueError as error:
        raise SettingsError(f"{file} is not valid TOML: {error}") from None


def _read_toml(file: Path) -> dict[str, Any]:
    import tomllib  # noqa: PLC0415, which most commands do not need

    return tomllib.loads(file.read_text("utf-8"))


def _error_message(error: ErrorDetails) -> tuple[str, str]:
    name = variable(str(error["loc"][0]))
    inner = ".".join(map(str, error["loc"][1:]))
    if error["type"] != "extra_forbidden" or inner:
        message = error["msg"].removeprefix("Value error, ")
        return name, f"{inner}: {message}" if inner and isinstance(error["loc"][1], str) else message
    nearest = get_close_matches(name, map(variable, Settings.model_fields), n=1)
    return name, f"unknown setting; did you mean {nearest[0]}?" if nearest else "unknown setting"


def _environment() -> dict[str, str]:
    """Returns the CONVERTD_* variables by field, unknown ones too. The case of variables does not matter."""
    variables = {name.upper(): value for name, value in os.environ.items() if name.upper() not in _OTHER_VARIABLES}
    return {
        name.removeprefix(ENV_PREFIX).lower(): value for name, value in variables.items() if name.startswith(ENV_PREFIX)
    }


@dataclass(frozen=True)
class EffectiveSetting:
    """A setting: its variable, its value without secrets, and its source."""

    name: str
    value: str | int | None
    source: str


def effective_settings(settings: Settings) -> list[EffectiveSetting]:
    """Returns all settings of this process in the order of their declaration."""
    environment = _environment()
    report = []
    for field in Settings.model_fields:
        if field in environment:
            source = "environment"
        elif field in settings.model_fields_set:
            source = os.environ.get(TOML_VARIABLE, "")
        else:
            source = "default"
        report.append(EffectiveSetting(variable(field), _display_value(getattr(settings, field)), source))
    return report


def _display_value(value: Any) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return _without_password(secret) if "://" in secret else MASK
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    if isinstance(value, dict):
        tables = {name: one.model_dump(exclude_none=True) for name, one in value.items()}
        return json.dumps(tables) if tables else None
    return _without_password(str(value))


def _without_password(text: str) -> str:
    """Masks the password and the query of a URL. Returns other texts unchanged."""
    if "://" not in text:
        return text
    return _QUERY.sub(f"?{MASK}", _PASSWORD.sub(lambda match: f"{match[1]}:{MASK}@" if match[2] else match[0], text))
