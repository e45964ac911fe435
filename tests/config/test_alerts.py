"""Every alert fires for its condition and does not fire just below it."""

import json
import re
import subprocess
from pathlib import Path
from typing import TypeAlias

import pytest

from engine.registry import load_registry
from web.api.operations import operations_of
from web.routes import TRIAL_RESOURCES, api_routes

_ALERTS = Path(__file__).parents[2] / "config" / "alerts.yml"

Series: TypeAlias = dict[str, str]
"""Values per series, one per minute, in promtool's notation."""

_FINE, _TROUBLE = "0+60x120", "0+30x120"
_ANSWERED = 'convertd_http_requests_total{method="GET",route="/api/v1/account",status="200"}'
_BROKEN = 'convertd_http_errors_total{route="/api/v1/account",code="server_error"}'
_POSTED = 'convertd_http_requests_total{method="POST",route="/api/v1/convert",status="500"}'
_LOST = 'convertd_http_errors_total{route="/api/v1/convert",code="server_error"}'
_REFUSED_FILE = 'convertd_http_errors_total{route="/api/v1/convert",code="processing_failed"}'
_SUCCESS = 'convertd_conversions_total{outcome="success",input_format="png"}'
_FAILED = 'convertd_conversions_total{outcome="failed",input_format="png"}'
_REJECTED = 'convertd_conversions_total{outcome="rejected",input_format="png"}'

# Per alert: series that trigger it, and series that must not.
_CASES: dict[str, tuple[Series, Series]] = {
    "ConvertdDown": (
        {'up{job="convertd"}': "1x120", 'up{job="convertd-worker"}': "1x10 0x110"},
        {'up{job="convertd"}': "1x120", 'up{job="convertd-worker"}': "1x119 0", 'up{job="other"}': "0x120"},
    ),
    "ConvertdNoServer": (
        {'up{job="other"}': "1x120"},  # no target
        {'up{job="convertd",instance="a"}': "0x120", 'up{job="convertd",instance="b"}': "1x120"},
    ),
    "ConvertdNotReady": (
        {"convertd_ready": "1x100 0x20"},
        {"convertd_ready": "1x119 0"},  # too short to trigger the alert
    ),
    "ConvertdUpkeepStalls": (
        {"convertd_stock_updated_timestamp_seconds": "0x120"},
        {"convertd_stock_updated_timestamp_seconds": "0+60x120"},
    ),
    "ConvertdAnswersFail": (
        {_ANSWERED: _FINE, _BROKEN: _TROUBLE},
        {_ANSWERED: _FINE, _BROKEN: "0+1x120", _REFUSED_FILE: _TROUBLE},
    ),
    "ConvertdConversionRequestsFail": (
        {_ANSWERED: "0+6000x120", _POSTED: _FINE, _LOST: "0+2x120"},
        {_ANSWERED: _FINE, _POSTED: _FINE, _BROKEN: _TROUBLE, _REFUSED_FILE: _TROUBLE},
    ),
    "ConvertdConversionsFail": (
        {_SUCCESS: _FINE, _FAILED: _TROUBLE},
        {_SUCCESS: _FINE, _FAILED: "0+1x120", _REJECTED: _TROUBLE},
    ),
    "ConvertdNothingConverted": ({_SUCCESS: "5x120", _FAILED: _TROUBLE}, {_SUCCESS: "0+1x120", _FAILED: _TROUBLE}),
    "ConvertdWorkersDie": (
        {'convertd_worker_restarts_total{cause="crash"}': "0+1x120"},
        {
            'convertd_worker_restarts_total{cause="crash"}': "0x60 1x60",
            'convertd_worker_restarts_total{cause="cancelled"}': _TROUBLE,
        },
    ),
    "ConvertdNoClusterWorker": (
        {'convertd_cluster_slots{instance="a"}': "4x110 0x10", 'convertd_cluster_slots{instance="b"}': "4x120"},
        {"convertd_cluster_slots": "4x119 0"},  # too short to trigger the alert
    ),
    "ConvertdMixedVersions": (
        {
            'convertd_cluster_workers{instance="a",version="1"}': "3x120",
            'convertd_cluster_workers{instance="a",version="2"}': "1x120",
            'convertd_cluster_workers_usable{instance="a"}': "3x120",
        },
        {
            'convertd_cluster_workers{instance="a",version="1"}': "3x120",
            'convertd_cluster_workers{instance="a",version="2"}': "_x110 1x10",  # for less than 15 minutes
            'convertd_cluster_workers_usable{instance="a"}': "3x120",
        },
    ),
    "ConvertdClusterRetries": (
        {"convertd_cluster_retries_total": "0+1x120"},
        {"convertd_cluster_retries_total": "0x110 2x10"},  # one job that kills its workers
    ),
    "ConvertdQueueSlow": (
        {
            'convertd_queue_wait_seconds_bucket{le="10"}': "0+80x120",
            'convertd_queue_wait_seconds_bucket{le="30"}': "0+100x120",
            'convertd_queue_wait_seconds_bucket{le="+Inf"}': "0+100x120",
        },
        {
            'convertd_queue_wait_seconds_bucket{le="10"}': "0+98x120",
            'convertd_queue_wait_seconds_bucket{le="30"}': "0+100x120",
            'convertd_queue_wait_seconds_bucket{le="+Inf"}': "0+100x120",
        },
    ),
    "ConvertdJobsLate": ({"convertd_jobs_oldest_seconds": "1000x120"}, {"convertd_jobs_oldest_seconds": "800x120"}),
    "ConvertdJobsRepeated": (
        {
            'convertd_job_attempts_total{outcome="completed"}': _FINE,
            'convertd_job_attempts_total{outcome="repeated"}': _TROUBLE,
        },
        {
            'convertd_job_attempts_total{outcome="completed"}': _FINE,
            'convertd_job_attempts_total{outcome="given_back"}': "0+1x120",
        },
    ),
    "ConvertdConversionsRefused": (
        {
            'convertd_queue_refused_total{cause="full"}': "0+10x120",
            'convertd_queue_refused_total{cause="late"}': "0x120",
            "convertd_queue_wait_seconds_count": _FINE,
        },
        {
            'convertd_queue_refused_total{cause="full"}': "0+1x120",
            'convertd_queue_refused_total{cause="stopping"}': _TROUBLE,
            "convertd_queue_wait_seconds_count": _FINE,
        },
    ),
    "ConvertdDiskNearlyFull": ({"convertd_disk_free_bytes": "4e9x120"}, {"convertd_disk_free_bytes": "6e9x120"}),
    "ConvertdRedisGone": (
        {"convertd_redis_breaker_open": "1x120"},
        {"convertd_redis_breaker_open": "0x119 1"},  # too short to trigger the alert
    ),
    "ConvertdMailFails": (
        {'convertd_mail_total{outcome="failed"}': "0x110 1x10", 'convertd_mail_total{outcome="sent"}': "0+1x120"},
        {'convertd_mail_total{outcome="failed"}': "1x120", 'convertd_mail_total{outcome="sent"}': "0+1x120"},
    ),
    "ConvertdWebhooksFail": (
        {
            'convertd_webhook_attempts_total{result="delivered"}': "0+1x120",
            'convertd_webhook_attempts_total{result="refused"}': "0+1x120",
            'convertd_webhook_attempts_total{result="no_response"}': "0+1x120",
        },
        {
            'convertd_webhook_attempts_total{result="delivered"}': "0+2x120",
            'convertd_webhook_attempts_total{result="no_response"}': "0+1x120",
        },
    ),
    "ConvertdWebhooksLate": (
        {'convertd_webhook_overdue_seconds{instance="a"}': "61x120"},
        {
            'convertd_webhook_overdue_seconds{instance="a"}': "600x120",  # it cannot read the database
            'convertd_webhook_overdue_seconds{instance="b"}': "59x120",
        },
    ),
    "ConvertdWebhooksDisabled": (
        {'convertd_webhooks_disabled_total{reason="failing"}': "0x110 3x10"},
        {
            'convertd_webhooks_disabled_total{reason="failing"}': "0x110 2x10",
            'convertd_webhooks_disabled_total{reason="gone"}': _FINE,
        },
    ),
    "ConvertdPaymentsFail": (
        {
            'convertd_payments_total{outcome="mismatch"}': "0x110 1x10",
            'convertd_payments_total{outcome="credited"}': _FINE,
        },
        {
            'convertd_payments_total{outcome="mismatch"}': "1x120",
            'convertd_payments_total{outcome="unknown_purchase"}': _FINE,
            'convertd_payments_total{outcome="credited"}': _FINE,
        },
    ),
    "ConvertdPaymentsUnsigned": (
        {
            'convertd_payments_total{outcome="invalid_signature"}': "0x90 1x10 2x10 3x10",  # an event, repeated
            'convertd_payments_total{outcome="credited"}': "5x120",
            'convertd_payments_total{outcome="opened"}': _FINE,
        },
        {
            'convertd_payments_total{outcome="invalid_signature"}': "0x90 1x10 2x10 3x10",
            'convertd_payments_total{outcome="credited"}': "0x90 1x30",
        },
    ),
    "ConvertdSandboxIncomplete": (
        {'convertd_sandbox_layer{layer="seccomp"}': "0x120", 'convertd_sandbox_layer{layer="landlock"}': "1x120"},
        {'convertd_sandbox_layer{layer="seccomp"}': "1x120", 'convertd_sandbox_layer{layer="own_user"}': "0x120"},
    ),
    "ConvertdPluginBroken": (
        {'convertd_plugin_up{plugin="psd",version="1"}': "0x120", 'convertd_plugin_up{plugin="png"}': "1x120"},
        {'convertd_plugin_up{plugin="psd",version="1"}': "1x120"},
    ),
    "ConvertdCreditsStuck": (
        {"convertd_credits_held": "3x120", "convertd_workers_busy": "1x120", "convertd_queue_depth": "1x120"},
        {"convertd_credits_held": "3x120", "convertd_workers_busy": "2x120", "convertd_queue_depth": "1x120"},
    ),
}


def test_every_alert_has_a_case() -> None:
    assert list(_CASES) == re.findall(r"alert: (\w+)", _ALERTS.read_text())


def test_configuration_is_valid() -> None:
    configuration = _ALERTS.with_name("prometheus.yml")

    done = subprocess.run(["promtool", "check", "config", configuration], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(_CASES)} rules found" in done.stdout


def test_the_routes_of_conversions_are_those_of_the_queue() -> None:
    (pattern,) = {re.compile(found) for found in re.findall(r'route=~"(.+?)"', _ALERTS.read_text())}
    routes = {route.label: route.operations for _, _, route in api_routes(load_registry())}
    routes |= {path: operations_of(handler) for path, handler in TRIAL_RESOURCES}
    queued = {label: operations["POST"].queued for label, operations in routes.items() if "POST" in operations}

    assert {label: bool(pattern.fullmatch(label)) for label in queued} == queued


@pytest.mark.long
def test_alerts_fire_only_for_their_condition(tmp_path: Path) -> None:
    tests = [
        _promtool_test(alert, series, fires)
        for alert, pair in _CASES.items()
        for series, fires in zip(pair, (True, False), strict=True)
    ]
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(_ALERTS)], "evaluation_interval": "5m", "tests": tests}))

    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr or done.stdout


def _promtool_test(alert: str, series: Series, fires: bool) -> dict[str, object]:
    test_case = {
        "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) or vector(0)',
        "eval_time": "2h",
        "exp_samples": [{"labels": "{}", "value": int(fires)}],
    }
    given = [{"series": name, "values": values} for name, values in series.items()]
    return {"interval": "1m", "input_series": given, "promql_expr_test": [test_case]}
