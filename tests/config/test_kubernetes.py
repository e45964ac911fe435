"""config/kubernetes.yml: its objects fit together, its settings are valid, and it has probes, limits and a scrape."""

import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.settings import Settings
from web.app import STOP_TIMEOUT
from web.routes import API_RESOURCES, FURTHER_RESOURCES

_FILE = Path(__file__).parents[2] / "config" / "kubernetes.yml"
_OBJECTS: dict[str, dict[str, Any]] = {one["kind"]: one for one in yaml.safe_load_all(_FILE.read_text())}
_POD: dict[str, Any] = _OBJECTS["Deployment"]["spec"]["template"]
(_CONTAINER,) = _POD["spec"]["containers"]
_NAMES = {"app.kubernetes.io/name": "convertd"}
_VERSIONS = {
    "ConfigMap": "v1",
    "Deployment": "apps/v1",
    "Ingress": "networking.k8s.io/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
    "PersistentVolumeClaim": "v1",
    "Secret": "v1",
    "Service": "v1",
}


@pytest.mark.parametrize("command", ["kubeconform -strict", "kubernetes-validate --strict"])
def test_the_schemas_of_kubernetes_match(command: str) -> None:
    """By either program, if it is installed: both are large."""
    program, option = command.split()
    if shutil.which(program) is None:
        assert {kind: one["apiVersion"] for kind, one in _OBJECTS.items()} == _VERSIONS
        return
    done = subprocess.run([program, option, str(_FILE)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_objects_refer_to_each_other() -> None:
    assert {one["metadata"]["name"] for one in _OBJECTS.values()} == {"convertd"}
    deployment, service = _OBJECTS["Deployment"]["spec"], _OBJECTS["Service"]["spec"]
    policy, ingress = _OBJECTS["NetworkPolicy"]["spec"], _OBJECTS["Ingress"]["spec"]
    assert _POD["metadata"]["labels"] == deployment["selector"]["matchLabels"] == service["selector"] == _NAMES
    assert policy["podSelector"]["matchLabels"] == _NAMES
    ports = {port["name"]: port["containerPort"] for port in _CONTAINER["ports"]}
    assert {port["targetPort"] for port in service["ports"]} == set(ports)
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == set(ports.values())
    (path,) = ingress["rules"][0]["http"]["paths"]
    assert path["backend"]["service"] == {"name": "convertd", "port": {"name": "http"}}
    mounted = {mount["name"] for mount in _CONTAINER["volumeMounts"]}
    assert mounted == {volume["name"] for volume in _POD["spec"]["volumes"]}


def test_the_settings_are_valid() -> None:
    settings = Settings.model_validate(tomllib.loads(_OBJECTS["ConfigMap"]["data"]["convertd.toml"]))
    assert settings.base_url == f"https://{_OBJECTS['Ingress']['spec']['rules'][0]['host']}/api/v1"
    assert settings.all_plans[settings.default_plan].unmetered
    assert (settings.metrics_address, settings.packs_on_sale) == ("0.0.0.0", {})
    assert str(settings.metrics_port) == _POD["metadata"]["annotations"]["prometheus.io/port"]


@pytest.mark.parametrize("probe", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probes(probe: str) -> None:
    paths = {path for path, _ in (*API_RESOURCES, *FURTHER_RESOURCES)}
    assert _CONTAINER[probe]["httpGet"]["path"] in paths
    assert _CONTAINER[probe]["httpGet"]["port"] == "http"


def test_limits() -> None:
    assert set(_CONTAINER["resources"]["limits"]) == {"cpu", "memory"}
    assert _CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert _POD["spec"]["terminationGracePeriodSeconds"] > STOP_TIMEOUT
