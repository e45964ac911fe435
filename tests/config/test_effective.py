"""The settings report: all settings with their sources, and no secrets."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from config.settings import Settings
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
