"""The container image and the compose file. No test runs a container engine."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from config.settings import ENV_PREFIX, load_settings
from tests.support.readme import read
from web.workers import cluster_worker

_ROOT = Path(__file__).parents[2]
_CONFIG = _ROOT / "config"
_COMPOSE: dict[str, Any] = yaml.safe_load((_CONFIG / "compose.yml").read_text())
_SERVICES: dict[str, dict[str, Any]] = _COMPOSE["services"]
_INSTALLED = "/opt/convertd"


def _instructions() -> list[tuple[str, str]]:
    """Returns the instructions of the image with their arguments, continued lines joined."""
    lines = (_CONFIG / "Containerfile").read_text().replace("\\\n", " ").splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines if line and line[0] != "#")]


def _argument(name: str) -> str:
    """Returns the argument of the instruction that occurs once."""
    (argument,) = [rest for instruction, rest in _instructions() if instruction == name]
    return argument


def test_the_image_has_what_it_needs_and_nothing_else() -> None:
    allowed = {line[1:] for line in (_ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for instruction, rest in _instructions() if instruction == "COPY" for name in rest.split()[:-1]}

    assert copied == allowed
    assert {name for name in copied if not (_ROOT / name).exists()} == set()
    assert "benchmarks" not in copied
    assert "tests" not in copied


def test_the_readme_runs_the_image() -> None:
    (commands,) = read("README.md").section("Start").blocks("console")

    assert " -f config/Containerfile ." in commands
    assert f":{_argument('EXPOSE')} -v convertd:{_argument('VOLUME')} convertd\n" in commands


def test_the_image_installs_locked_versions() -> None:
    set_up = (_CONFIG / "setup.sh").read_text()

    assert _argument("RUN").startswith("sh config/setup.sh cluster ")
    assert "--require-hashes" in set_up
    assert "pip install" not in _argument("RUN")


def test_office_and_video_are_build_arguments() -> None:
    name, default = _argument("ARG").split("=")
    (build,) = {yaml.safe_dump(service["build"]) for service in _SERVICES.values() if "build" in service}
    parts = re.fullmatch(r"\$\{LAYERS-(\w+) (\w+)\}", yaml.safe_load(build)["args"][name])

    assert default == '""'
    assert f"ocr ${name} " in _argument("RUN")
    assert [name for name, _ in _instructions()].index("ARG") < [name for name, _ in _instructions()].index("RUN")
    assert parts
    assert parts.groups() == ("office", "video")


def test_the_image_runs_as_a_user() -> None:
    number, data = _argument("USER"), _argument("VOLUME")

    assert int(number) > 0  # a name could be that of root, for what an orchestrator knows
    made = re.search(rf"useradd [^&]*--uid {number} [^&]* (\w+) ", _argument("RUN"))
    assert made
    user = made[1]
    assert f"install -d -o {user} -g {user} -m 700 {data}" in _argument("RUN")
    assert ("ENV", f"{ENV_PREFIX}DATA_DIR={data}") in _instructions()
    names = [name for name, _ in _instructions()]
    assert names.index("RUN") < names.index("USER") < names.index("ENTRYPOINT")


def test_the_image_serves_and_checks_its_health() -> None:
    assert _argument("WORKDIR") == _INSTALLED
    assert _argument("ENTRYPOINT") == f'["{_INSTALLED}/.venv/bin/convertd"]'
    assert _argument("CMD") == '["serve", "--host", "0.0.0.0"]'
    assert re.search(
        rf'CMD \["curl", "--fail", .*"http://127.0.0.1:{_argument("EXPOSE")}/readyz"\]$', _argument("HEALTHCHECK")
    )
    assert re.search(r"^curl ", (_CONFIG / "setup.sh").read_text(), re.MULTILINE)


@pytest.mark.parametrize("name", ["convertd", "worker"])
def test_the_settings_are_valid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    variables = _SERVICES[name]["environment"]
    settings = {name: value for name, value in variables.items() if name.startswith(ENV_PREFIX)}
    monkeypatch.delenv("CONVERTD_TEMPLATES_AHEAD")  # of all tests
    for variable, value in settings.items():
        monkeypatch.setenv(variable, _substituted(str(value)))

    loaded = load_settings()

    assert {ENV_PREFIX + name.upper() for name in loaded.model_fields_set} == set(settings)
    others = {variable for variable in variables.keys() - settings.keys() if not variable.startswith("DASK_")}
    store = {"AWS_ACCESS_KEY_ID", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_SECRET_ACCESS_KEY"}
    assert others == (store if name == "convertd" else set())  # a worker has no credentials


def _substituted(value: str) -> str:
    return re.sub(r"\$\{(\w+):\?\}", r"\1", value)


def test_the_service_uses_the_stores() -> None:
    service, store = _SERVICES["convertd"]["environment"], _SERVICES["s3"]["environment"]
    garage = (_CONFIG / "garage.toml").read_text()

    hosts = {urlsplit(_substituted(value)).hostname for name, value in service.items() if name.endswith("_URL")}
    assert hosts == {"localhost", "postgres", "redis", "s3", store["GARAGE_DEFAULT_BUCKET"]}
    assert service["AWS_ACCESS_KEY_ID"] == store["GARAGE_DEFAULT_ACCESS_KEY"]
    assert service["AWS_SECRET_ACCESS_KEY"] == store["GARAGE_DEFAULT_SECRET_KEY"]
    assert f's3_region = "{service["AWS_REGION"]}"' in garage
    assert f'api_bind_addr = "[::]:{urlsplit(service["AWS_ENDPOINT_URL"]).port}"' in garage


def test_the_cluster_runs_the_image_of_the_server() -> None:
    server, scheduler, worker = (_SERVICES[name] for name in ("convertd", "scheduler", "worker"))
    address = urlsplit(server["environment"]["CONVERTD_CLUSTER"])

    for service in (scheduler, worker):
        assert (service["image"], service["pull_policy"]) == (server["image"], "never")
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
    assert worker["security_opt"] == server["security_opt"]
    assert _SERVICES[str(address.hostname)] is scheduler
    assert scheduler["entrypoint"][1:4] == ["scheduler", "--protocol", address.scheme]
    assert scheduler["entrypoint"][4:] == ["--port", str(address.port), "--no-dashboard"]
    assert Path(scheduler["entrypoint"][0]).parent == Path(f"{_INSTALLED}/.venv/bin")
    others = {name: value for name, value in scheduler["environment"].items() if "COMM" not in name}
    assert others == {
        "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT": "5s",
        "DASK_DISTRIBUTED__SCHEDULER__WORKER_TTL": "30s",
    }
    for name, value in worker["environment"].items():
        assert server["environment"].get(name, value) == value


@pytest.mark.parametrize(("name", "part"), [("convertd", "CLIENT"), ("scheduler", "SCHEDULER"), ("worker", "WORKER")])
def test_each_process_of_the_cluster_has_its_certificate_only(name: str, part: str) -> None:
    (mount,) = [volume for volume in _SERVICES[name]["volumes"] if isinstance(volume, dict)]
    certificates = _SERVICES["certificates"]
    (created,) = certificates["volumes"]

    assert created == f"{mount['source']}:{certificates['command'][-1]}"
    assert certificates["command"][:-1] == ["cluster", "certificates"]
    assert mount["volume"] == {"subpath": "server" if part == "CLIENT" else part.lower()}
    assert mount["read_only"]
    assert {key: value for key, value in _SERVICES[name]["environment"].items() if "COMM" in key} == {
        "DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION": "true",
        "DASK_DISTRIBUTED__COMM__TLS__CA_FILE": f"{mount['target']}/ca.pem",
        f"DASK_DISTRIBUTED__COMM__TLS__{part}__CERT": f"{mount['target']}/certificate.pem",
        f"DASK_DISTRIBUTED__COMM__TLS__{part}__KEY": f"{mount['target']}/key.pem",
    }


def test_prometheus_scrapes_the_worker() -> None:
    worker, prometheus = _SERVICES["worker"], _SERVICES["prometheus"]
    (mounted,) = prometheus["configs"]
    (target,) = yaml.safe_load(_COMPOSE["configs"][mounted["source"]]["content"])
    (file,) = yaml.safe_load((_CONFIG / "prometheus.yml").read_text())["scrape_configs"][1]["file_sd_configs"]

    assert file["files"] == [Path(mounted["target"]).name]
    assert target["targets"] == [f"127.0.0.1:{worker['environment'][f'{ENV_PREFIX}METRICS_PORT']}"]


def test_the_worker_may_finish_its_jobs() -> None:
    assert int(_SERVICES["worker"]["stop_grace_period"].removesuffix("s")) >= cluster_worker.DRAIN_TIMEOUT + 10


def test_all_mounted_paths_and_volumes_exist() -> None:
    volumes = [volume for service in _SERVICES.values() for volume in service.get("volumes", [])]
    mounts = [volume.split(":") for volume in volumes if isinstance(volume, str)]
    files = {source for source, *_ in mounts if source.startswith("./")}

    assert {source for source in files if not (_CONFIG / source).exists()} == set()
    assert {source for source, *_ in mounts} - files == set(_COMPOSE["volumes"])
    assert _SERVICES["convertd"]["volumes"][0] == f"data:{_argument('VOLUME')}"
    targets = {target: source for source, target, *_ in mounts}
    assert targets[f"{_INSTALLED}/config/grafana/dashboards"] == "./grafana/dashboards"  # as in the provisioning


def test_services_wait_for_health_checks() -> None:
    for name, service in _SERVICES.items():
        for other, dependency in service.get("depends_on", {}).items():
            if dependency["condition"] == "service_healthy":
                assert "healthcheck" in _SERVICES[other], (name, other)
        assert service["image"] == "convertd" or re.search(r":v?\d[\d.]*$", service["image"]), name


def test_services_are_not_reachable_from_other_machines() -> None:
    published = [port for service in _SERVICES.values() for port in service.get("ports", [])]

    assert {port.rpartition(":")[2] for port in published} == {"8000", "9090", "3000"}
    assert all(port.startswith("127.0.0.1:") for port in published)
    for name in ("prometheus", "grafana", "worker"):  # their configuration has the addresses of one machine
        assert _SERVICES[name]["network_mode"] == "service:convertd"


def test_all_secrets_are_created_as_documented() -> None:
    used = set(re.findall(r"\$\{(\w+):\?\}", (_CONFIG / "compose.yml").read_text()))
    documented = re.findall(r"^(\w+)=", read("config/README.md").section("Run in containers").text, re.MULTILINE)

    assert set(documented) == used
