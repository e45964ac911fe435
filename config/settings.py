"""Settings from CONVERTD_* variables and a TOML file, and the report of those in effect."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from email.errors import HeaderParseError
from email.headerregistry import Address
from email.utils import getaddresses
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_core import ErrorDetails
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

ENV_PREFIX = "CONVERTD_"
TOML_VARIABLE = "CONVERTD_CONFIG"

_OTHERS = frozenset(  # of the file, of clients and of the tests
    {TOML_VARIABLE, "CONVERTD_API_KEY", "CONVERTD_KEY", "CONVERTD_URL", "CONVERTD_TEST_CORPUS"}
)


def variable(field: str) -> str:
    """The variable of the environment that sets the field."""
    return ENV_PREFIX + field.upper()


def unknown(environment: Iterable[str], fields: Collection[str]) -> list[str]:
    """The variables that look like settings and are none, nor meant for anything else of ours."""
    known = {variable(field) for field in fields} | _OTHERS
    return sorted(name for name in environment if name.upper().startswith(ENV_PREFIX) and name.upper() not in known)


def complaint(name: str, fields: Collection[str]) -> str:
    """What is said of such a variable."""
    nearest = get_close_matches(name.upper(), [variable(field) for field in fields], n=1)
    return f"is no setting; did you mean {nearest[0]}?" if nearest else "is no setting"


Network: TypeAlias = IPv4Network | IPv6Network


class SettingsError(ValueError):
    """Settings that cannot be used; `str(error)` lists every one of them, a line each."""


def _networks(value: object) -> object:
    """Addresses and networks from a comma-separated text or a list."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple):
        return value
    return tuple(ip_network(str(part).strip(), strict=False) for part in parts if str(part).strip())


def _base_url(value: str) -> str:
    url = value.rstrip("/")
    if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?/api/v1", url):
        raise ValueError("must be an http or https URL that ends in /api/v1")
    return url


def _secret_url(*schemes: str) -> AfterValidator:
    """URLs of these schemes that name a place; the message keeps quiet about what they hold."""

    def check(value: SecretStr) -> SecretStr:
        try:
            parts = urlsplit(value.get_secret_value())
            valid = parts.scheme in schemes and bool(
                parts.path if parts.scheme in ("unix", "sqlite") else parts.hostname
            )
            valid = valid and parts.port != 0
        except ValueError:
            valid = False
        if not valid:
            raise ValueError(f"must be a URL that begins with {' or '.join(f'{name}://' for name in schemes)}")
        return value

    return AfterValidator(check)


def _http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s?#]+(/[^\s?#]*)?", value):
        raise ValueError("must be an http or https URL")
    return value.rstrip("/")


def _stripe_key(value: SecretStr) -> SecretStr:
    if not re.fullmatch(r"[sr]k_\w+", value.get_secret_value(), re.ASCII):
        raise ValueError("must be a secret or restricted key of Stripe, which begins with sk_ or rk_")
    return value


def _sender(value: str) -> str:
    try:
        ((name, address),) = getaddresses([value])
        valid = value.isprintable() and address.isascii() and bool(address and Address(name, addr_spec=address).domain)
    except (ValueError, HeaderParseError):  # ValueError for more than one, too
        valid = False
    if not valid:
        raise ValueError("must be an e-mail address, or a name and one such as: convertd <no-reply@example.org>")
    return value


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Settings(BaseSettings):
    """What the operator chose. Each field is CONVERTD_<FIELD> in the environment, which wins over the file."""

    model_config = SettingsConfigDict(env_prefix=ENV_PREFIX, frozen=True, extra="forbid")

    data_dir: Path = Path("data")  # everything that is kept lies below it
    base_url: Annotated[str, AfterValidator(_base_url)] = "http://localhost:8000/api/v1"  # as clients see it
    database_url: Annotated[SecretStr, _secret_url("sqlite", "postgresql")] | None = None  # None is SQLite in data_dir
    rate_limit_free: int = Field(60, ge=1)  # requests a minute and account
    rate_limit_paid: int = Field(300, ge=1)
    rate_limit_anonymous: int = Field(60, ge=1)  # requests a minute and address
    redis_url: Annotated[SecretStr, _secret_url("redis", "rediss", "unix")] | None = None  # None counts in each process
    smtp_url: Annotated[SecretStr, _secret_url("smtp", "smtps")] | None = (
        None  # None writes letters to <data_dir>/outbox
    )
    mail_from: Annotated[str, AfterValidator(_sender)] = "convertd <no-reply@localhost>"
    workers: int = Field(default_factory=_cores, ge=1)  # conversions at a time
    metrics_port: int = Field(9464, ge=0, le=65_535)  # on this machine alone; 0 is off
    sandbox: Literal["required", "best_effort", "off"] = "best_effort"
    trusted_proxies: Annotated[tuple[Network, ...], NoDecode, BeforeValidator(_networks)] = ()
    log_format: Literal["text", "json"] = "text"
    file_retention_seconds: int = Field(86_400, ge=1)
    blob_url: Annotated[SecretStr, _secret_url("s3")] | None = None  # None keeps files in data_dir
    max_batch_files: int = Field(50, ge=1, le=1000)
    stripe_secret_key: Annotated[SecretStr, AfterValidator(_stripe_key)] | None = None
    stripe_webhook_secret: SecretStr | None = Field(None, validate_default=True)  # several while one is replaced
    stripe_api_base: Annotated[str, AfterValidator(_http_url)] = "https://api.stripe.com"

    @field_validator("stripe_webhook_secret")
    @classmethod
    def _goes_with_the_key(cls, value: SecretStr | None, others: ValidationInfo) -> SecretStr | None:
        # Packs that are paid for would never be credited.
        key = others.data.get("stripe_secret_key", value)
        has_secret = value is not None and bool(value.get_secret_value().strip(", "))
        if (value is not None and not has_secret) or (key is None) != (value is None):
            raise ValueError(f"must be set where {ENV_PREFIX}STRIPE_SECRET_KEY is set, and only there")
        return value

    def rate_limit(self, tier: str) -> int:
        """Requests a minute for an account of that tier."""
        return {"free": self.rate_limit_free, "paid": self.rate_limit_paid}[tier]

    def resolved_database_url(self) -> str:
        """Returns `database_url`, or by default the URL of a SQLite file in `data_dir`. Contains the password."""
        if self.database_url is not None:
            return self.database_url.get_secret_value()
        return f"sqlite:///{self.data_dir.absolute() / 'convertd.db'}"

    def at_port(self, port: int) -> Settings:
        """The same for a server on that port of this machine: links lead there, unless the base URL was set."""
        if "base_url" in self.model_fields_set or port == 0:
            return self
        return self.model_copy(update={"base_url": f"http://localhost:{port}/api/v1"})

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        file = os.environ.get(TOML_VARIABLE)
        toml = [TomlConfigSettingsSource(settings_cls, Path(file))] if file else []
        return (init_settings, env_settings, *toml)


def load_settings() -> Settings:
    """The settings of this process. Raises SettingsError with all that is wrong."""
    file = os.environ.get(TOML_VARIABLE)
    if file and not Path(file).is_file():
        raise SettingsError(f"{TOML_VARIABLE} names a file that does not exist: {file}")
    fields = Settings.model_fields
    wrong = {name: complaint(name, fields) for name in unknown(os.environ, fields)}
    try:
        settings = Settings()
    except ValidationError as error:
        # Values stay out of the message: some settings are secrets.
        wrong |= dict(map(_complaint, error.errors()))
    except ValueError as error:
        raise SettingsError(f"{file} is no valid TOML: {error}") from None
    if wrong:
        lines = [f"  {name}: {message}" for name, message in wrong.items()]
        raise SettingsError("\n".join(["These settings cannot be used:", *lines]))
    return settings


def _complaint(error: ErrorDetails) -> tuple[str, str]:
    name = variable(str(error["loc"][0]))
    if error["type"] == "extra_forbidden":
        return name, complaint(name, Settings.model_fields)
    return name, error["msg"].removeprefix("Value error, ")


_HIDDEN = "***"
_PASSWORD = re.compile(r"(?<=://)([^/@]*?)(:[^/]*)?@")  # to the last @: a password may hold one
_QUERY = re.compile(r"\?.*", re.DOTALL)


@dataclass(frozen=True)
class Effective:
    """A setting: its full name, its value without secrets, and where that came from."""

    name: str
    value: str | int | None
    source: str


def effective(settings: Settings) -> list[Effective]:
    """All settings of this process, in the order in which they are declared."""
    given = {name.upper() for name in os.environ}
    found = []
    for field in Settings.model_fields:
        name = variable(field)
        source = "default" if field not in settings.model_fields_set else os.environ.get(TOML_VARIABLE, "")
        found.append(Effective(name, _shown(getattr(settings, field)), "environment" if name in given else source))
    return found


def _shown(value: Any) -> str | int | None:
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return _without_password(secret) if "://" in secret else _HIDDEN
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return _without_password(str(value))


def _without_password(text: str) -> str:
    """URLs without what may be secret in them; other texts as they are."""
    if "://" not in text:
        return text
    return _QUERY.sub(
        f"?{_HIDDEN}", _PASSWORD.sub(lambda found: f"{found[1]}:{_HIDDEN}@" if found[2] else found[0], text)
    )
