"""Settings: sources, validation, error messages, and the report of all settings, without secrets."""

import json
import os
from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from config.settings import Settings, SettingsError, load_settings
from web.cli.main import cli

CANARY = "canary"
SECRETS = {
    "DATABASE_URL": (f"postgresql://me:{CANARY}@{CANARY}@db/convertd", "postgresql://me:***@db/convertd"),
    "REDIS_URL": (f"redis://:{CANARY}@cache:6379/0?password={CANARY}", "redis://:***@cache:6379/0?***"),
    "SMTP_URL": (f"smtp://me%40example.org:{CANARY}@mail:587", "smtp://me%40example.org:***@mail:587"),
    "BLOB_URL": ("s3://bucket/prefix", "s3://bucket/prefix"),
    "BASE_URL": (f"https://me:{CANARY}@here.example/api/v1", "https://me:***@here.example/api/v1"),
    "STRIPE_SECRET_KEY": (f"sk_test_{CANARY}", "***"),
    "STRIPE_WEBHOOK_SECRET": (f"whsec_{CANARY}", "***"),
}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CONVERTD_")]:
        monkeypatch.delenv(name)


def test_defaults() -> None:
    settings = load_settings()
    assert settings.data_dir == Path("data")
    assert settings.base_url == "http://localhost:8000/api/v1"
    assert (settings.rate_limit_free, settings.rate_limit_paid) == (60, 300)
    assert settings.rate_limit_anonymous == 60
    assert settings.workers >= 1
    assert settings.file_retention_seconds == 86_400
    assert settings.trusted_proxies == ()
    assert (settings.redis_url, settings.smtp_url) == (None, None)
    assert settings == Settings.model_validate(settings.model_dump())  # defaults pass the checks of given values


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTD_DATA_DIR", "/srv/convertd")
    monkeypatch.setenv("CONVERTD_BASE_URL", "https://convert.example.org/api/v1/")
    monkeypatch.setenv("CONVERTD_RATE_LIMIT_PAID", "1000")
    monkeypatch.setenv("CONVERTD_TRUSTED_PROXIES", "10.0.0.0/8, 127.0.0.1,")
    monkeypatch.setenv("CONVERTD_URL_PORTS", "443, 8443,")
    settings = load_settings()
    assert settings.data_dir == Path("/srv/convertd")
    assert settings.base_url == "https://convert.example.org/api/v1"
    assert settings.rate_limit_paid == 1000
    assert settings.trusted_proxies == (ip_network("10.0.0.0/8"), ip_network("127.0.0.1"))
    assert settings.url_ports == (443, 8443)


def test_the_environment_wins_over_the_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "convertd.toml"
    file.write_text('workers = 3\nlog_format = "json"\ntrusted_proxies = ["::1"]\n')
    monkeypatch.setenv("CONVERTD_CONFIG", str(file))
    monkeypatch.setenv("CONVERTD_WORKERS", "5")
    settings = load_settings()
    assert (settings.workers, settings.log_format) == (5, "json")
    assert settings.trusted_proxies == (ip_network("::1"),)


def test_all_invalid_values_are_reported_together(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = {
        "WORKERS": "many",
        "RATE_LIMIT_FREE": "0",
        "BASE_URL": "localhost:8000",
        "TRUSTED_PROXIES": "10.0.0.0/8,nowhere",
        "URL_PORTS": "80,65536",
        "EGRESS_PROXY": "socks5://proxy:1080",
        "LOG_FORMAT": "xml",
        "BLOB_URL": "https://bucket",
        "MAX_BATCH_FILES": "1001",
    }
    for name, value in wrong.items():
        monkeypatch.setenv(f"CONVERTD_{name}", value)
    with pytest.raises(SettingsError) as refused:
        load_settings()
    lines = str(refused.value).splitlines()
    assert {line.split(":")[0].strip() for line in lines[1:]} == {f"CONVERTD_{name}" for name in wrong}
    assert len(lines) == len(wrong) + 1


def test_unknown_names_are_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "convertd.toml"
    file.write_text("workres = 3\n")
    monkeypatch.setenv("CONVERTD_CONFIG", str(file))
    monkeypatch.setenv("CONVERTD_SANDBXO", "required")
    monkeypatch.setenv("CONVERTD_WORKERS", "many")
    monkeypatch.setenv("CONVERTD_NOTHING_OF_THE_KIND", "secret")
    with pytest.raises(SettingsError) as refused:
        load_settings()
    assert sorted(str(refused.value).splitlines()[1:]) == [
        "  CONVERTD_NOTHING_OF_THE_KIND: unknown setting",
        "  CONVERTD_SANDBXO: unknown setting; did you mean CONVERTD_SANDBOX?",
        "  CONVERTD_WORKERS: Input should be a valid integer, unable to parse string as an integer",
        "  CONVERTD_WORKRES: unknown setting; did you mean CONVERTD_WORKERS?",
    ]


@pytest.mark.parametrize("name", ["CONVERTD_API_KEY", "CONVERTD_URL", "convertd_workers"])
def test_other_variables_are_ignored(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    load_settings()


def test_a_missing_file_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CONVERTD_CONFIG", str(tmp_path / "none.toml"))
    with pytest.raises(SettingsError, match=r"does not exist: .*none\.toml"):
        load_settings()


def test_a_file_that_is_not_toml_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "convertd.toml"
    file.write_text("workers: 3")
    monkeypatch.setenv("CONVERTD_CONFIG", str(file))
    with pytest.raises(SettingsError, match=r"not valid TOML"):
        load_settings()


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError):
        Settings().workers = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    ("setting", "url"),
    [
        ("redis_url", "redis://:pass@cache:6379/1"),
        ("redis_url", "rediss://user:pass@cache"),
        ("redis_url", "unix:///run/pass.sock"),
        ("smtp_url", "smtp://post%40example.org:pass@mail.example.org:587"),
        ("smtp_url", "smtps://post:pass@mail.example.org"),
        ("blob_url", "s3://bucket/pass"),
        ("blob_url", "file:///srv/pass"),
    ],
)
def test_urls_keep_their_secrets(monkeypatch: pytest.MonkeyPatch, setting: str, url: str) -> None:
    monkeypatch.setenv(f"CONVERTD_{setting.upper()}", url)
    settings = load_settings()
    assert getattr(settings, setting).get_secret_value() == url
    assert "pass" not in repr(settings)
    assert "pass" not in settings.model_dump_json()


@pytest.mark.parametrize("setting", ["REDIS_URL", "SMTP_URL"])
@pytest.mark.parametrize(
    "rest", ["http://:pass@host", "{}://", "{}://:pass@host:port", "{}://:pass@host:0", "pass", "unix://", "{}://[pass"]
)
def test_invalid_urls_are_not_shown(monkeypatch: pytest.MonkeyPatch, setting: str, rest: str) -> None:
    monkeypatch.setenv(f"CONVERTD_{setting}", rest.format(setting[:5].rstrip("_").lower()))
    with pytest.raises(SettingsError, match=rf"CONVERTD_{setting}: must be a URL") as refused:
        load_settings()
    assert "pass" not in str(refused.value)


@pytest.mark.parametrize("address", ["tcp://scheduler:8786", "tls://10.0.0.7:8786", "tcp://[::1]:8786"])
def test_clusters(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    assert load_settings().cluster is None
    monkeypatch.setenv("CONVERTD_CLUSTER", address)
    assert load_settings().cluster == address


@pytest.mark.parametrize("sender", ["no-reply@example.org", "The Converter <no-reply@example.org>"])
def test_senders(monkeypatch: pytest.MonkeyPatch, sender: str) -> None:
    monkeypatch.setenv("CONVERTD_MAIL_FROM", sender)
    assert load_settings().mail_from == sender


def test_the_port_is_in_the_base_url_unless_it_is_set() -> None:
    assert Settings().at_port(8099).base_url == "http://localhost:8099/api/v1"
    assert Settings().at_port(0).base_url == Settings().base_url
    assert Settings(base_url="https://here.example/api/v1").at_port(8099).base_url == "https://here.example/api/v1"


def test_stripe_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (load_settings().stripe_secret_key, load_settings().stripe_webhook_secret) == (None, None)
    monkeypatch.setenv("CONVERTD_STRIPE_SECRET_KEY", "rk_live_quiet")
    monkeypatch.setenv("CONVERTD_STRIPE_WEBHOOK_SECRET", "whsec_quiet")
    settings = load_settings()
    assert settings.stripe_api_base == "https://api.stripe.com"
    assert "quiet" not in repr(settings) + settings.model_dump_json()


@pytest.mark.parametrize(
    ("key", "secret", "wrong"),
    [
        ("sk_test_quiet", None, "STRIPE_WEBHOOK_SECRET: must be set if and only if CONVERTD_STRIPE_SECRET_KEY is set"),
        ("sk_test_quiet", " , ", "STRIPE_WEBHOOK_SECRET: must be set if and only if CONVERTD_STRIPE_SECRET_KEY is set"),
        (None, "whsec_quiet", "STRIPE_WEBHOOK_SECRET: must be set if and only if CONVERTD_STRIPE_SECRET_KEY is set"),
        ("pk_live_quiet", "whsec_quiet", "STRIPE_SECRET_KEY: must be a secret or restricted Stripe key"),
        ("", "whsec_quiet", "STRIPE_SECRET_KEY: must be a secret or restricted Stripe key"),
    ],
)
def test_invalid_stripe_keys(monkeypatch: pytest.MonkeyPatch, key: str | None, secret: str | None, wrong: str) -> None:
    for name, value in {"SECRET_KEY": key, "WEBHOOK_SECRET": secret}.items():
        if value is not None:
            monkeypatch.setenv(f"CONVERTD_STRIPE_{name}", value)
    with pytest.raises(SettingsError, match=wrong) as refused:
        load_settings()
    assert len(str(refused.value).splitlines()) == 2
    assert "quiet" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value", "wrong"),
    [
        ("STRIPE_SECRET_KEY", "sk_live_quiet", "must not be set together with CONVERTD_STRIPE_SECRET_KEY"),
        ("BASE_URL", "https://convert.example/api/v1", "requires a CONVERTD_BASE_URL on this machine"),
        ("BASE_URL", "http://10.0.0.1:8000/api/v1", "requires a CONVERTD_BASE_URL on this machine"),
    ],
)
def test_simulated_checkout_is_local(monkeypatch: pytest.MonkeyPatch, name: str, value: str, wrong: str) -> None:
    monkeypatch.setenv("CONVERTD_SIMULATED_CHECKOUT", "true")
    assert load_settings().simulated_checkout
    monkeypatch.setenv(f"CONVERTD_{name}", value)
    if name == "STRIPE_SECRET_KEY":
        monkeypatch.setenv("CONVERTD_STRIPE_WEBHOOK_SECRET", "whsec_quiet")
    with pytest.raises(SettingsError, match=f"CONVERTD_SIMULATED_CHECKOUT: {wrong}"):
        load_settings()


_BLOB_URLS = ("file:", "file://", "file://srv/blobs", "bucket", "/srv/blobs", "s3://")


_SCHEDULERS = (
    *("", "scheduler:8786", "http://scheduler:8786", "tcp://scheduler", "tcp://a:1,tcp://b:1", "tcp://a:b"),
    *("tcp://scheduler:0", "tcp://scheduler:65536"),
)


_SENDERS = ("", "nobody", "a b@example.org", "a@example.org\nBcc: b@example.org", "a@b, c@d")


_STRIPE_URLS = ("api.stripe.com", "ftp://api.stripe.com", "https://", "https://host/?query")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        *(("BLOB_URL", value, "must be a URL starting with s3:// or file://") for value in _BLOB_URLS),
        *(("CLUSTER", value, "must be the address of a Dask scheduler, such as tcp:") for value in _SCHEDULERS),
        *(("MAIL_FROM", value, "must be an email address") for value in _SENDERS),
        ("METRICS_ADDRESS", "somewhere", "'somewhere' does not appear to be an IPv4 or IPv6 address"),
        ("OIDC_ISSUER", "http://login.example.org", "must be an https URL, unless it is on this machine"),
        ("OIDC_CLIENT_ID", "convertd", "must be set if and only if CONVERTD_OIDC_ISSUER is set"),
        ("DEFAULT_PLAN", "gold", "must be one of free, paid, trial"),
        ("REGISTRATION", "maybe", "Input should be 'open', 'invite' or 'closed'"),
        ("PLANS", "gold", "must be a table of the TOML file, or JSON"),
        *(("STRIPE_API_BASE", value, "must be an http or https URL") for value in _STRIPE_URLS),
    ],
)
def test_invalid_values(monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str) -> None:
    monkeypatch.setenv("CONVERTD_BLOB_URL", "s3://bucket")
    monkeypatch.setenv(f"CONVERTD_{name}", value)
    with pytest.raises(SettingsError, match=f"CONVERTD_{name}: {message}"):
        load_settings()


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["config", *arguments], env={"COLUMNS": "200"})
    assert done.exit_code == 0, done.output
    return done.output


def test_every_setting_has_its_source(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "convertd.toml"
    file.write_text('workers = 3\nlog_format = "json"\n')
    monkeypatch.setenv("CONVERTD_CONFIG", str(file))
    monkeypatch.setenv("CONVERTD_WORKERS", "5")
    monkeypatch.setenv("CONVERTD_TRUSTED_PROXIES", "10.0.0.0/8,::1")
    monkeypatch.setenv("CONVERTD_BLOB_URL", "file:///srv/blobs")
    monkeypatch.setenv("CONVERTD_CLUSTER", "tcp://scheduler:8786")
    report = json.loads(printed("--json"))
    assert set(report) == {f"CONVERTD_{field.upper()}" for field in Settings.model_fields}
    assert report["CONVERTD_WORKERS"] == {"value": 5, "source": "environment"}
    assert report["CONVERTD_LOG_FORMAT"] == {"value": "json", "source": str(file)}
    assert report["CONVERTD_TRUSTED_PROXIES"] == {"value": "10.0.0.0/8,::1/128", "source": "environment"}
    assert report["CONVERTD_BLOB_URL"] == {"value": "file:///srv/blobs", "source": "environment"}
    assert report["CONVERTD_CLUSTER"] == {"value": "tcp://scheduler:8786", "source": "environment"}
    assert report["CONVERTD_METRICS_PORT"] == {"value": 9464, "source": "default"}
    assert report["CONVERTD_REDIS_URL"] == {"value": None, "source": "default"}


def test_secrets_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, (value, _) in SECRETS.items():
        monkeypatch.setenv(f"CONVERTD_{name}", value)
    report = json.loads(printed("--json"))
    assert {name: report[f"CONVERTD_{name}"]["value"] for name in SECRETS} == {n: v for n, (_, v) in SECRETS.items()}
    assert CANARY not in json.dumps(report)
    assert CANARY not in printed()
    assert "me:***@db" in printed()


def test_invalid_settings_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTD_SANDBXO", "required")
    done = CliRunner().invoke(cli, ["serve"])
    assert done.exit_code == 2
    assert "CONVERTD_SANDBXO: unknown setting; did you mean CONVERTD_SANDBOX?" in done.stderr


def test_plans_and_packs_are_tables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "convertd.toml"
    text = 'default_plan = "team"\nrate_limit_free = 7\n[plans.team]\nmax_file_size = "500MB"\nunmetered = true\n'
    file.write_text(f"{text}[plans.free]\nmax_concurrent = 3\n[packs]\n")
    monkeypatch.setenv("CONVERTD_CONFIG", str(file))
    settings = load_settings()
    team, free, paid = (settings.all_plans[name] for name in ("team", "free", "paid"))
    assert (team.max_file_size, team.max_concurrent, team.price) == (500 << 20, paid.max_concurrent, 0)
    assert (free.requests_per_minute, free.max_concurrent, free.max_file_size, free.price) == (7, 3, 10 << 20, 1)
    assert (settings.default_plan, settings.packs) == ("team", {})

    file.write_text('[plans.team]\nmax_file_size = "much"\n[packs.small]\ncredits = 5\n')
    with pytest.raises(SettingsError) as refused:
        load_settings()
    lines = [line.strip().split(": ") for line in str(refused.value).splitlines()[1:]]
    assert [line[:2] for line in lines] == [
        ["CONVERTD_PLANS", "team.max_file_size"],
        ["CONVERTD_PACKS", "small.amount"],
    ]
