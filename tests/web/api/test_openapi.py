"""The OpenAPI document is valid, complete, and describes existing endpoints only; schemathesis with all its checks."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from math import ceil
from pathlib import Path
from typing import Any, get_args

import httpx
import jsonschema_rs
import pytest
from openapi_spec_validator import validate

from benchmarks.processes import free_port
from engine.registry import load_registry
from tests.support.requests import http
from tests.support.requests.checks import conforms, pointer_of_response, published, validator_of
from tests.support.samples.forms import image
from tests.support.samples.generated import sample
from tests.support.servers.in_process import LenientRateLimiter, Running, Servers
from web.api.error_catalogue import ERROR_CATALOGUE
from web.api.field_types import RequestModel, describe
from web.api.field_types import validate as validate_fields
from web.api.fields import EmailFields
from web.api.headers import COMMON_HEADERS, HEADERS, PREFLIGHT_HEADERS, common_headers
from web.api.operations import JSON_FORM, FormFields, camel_case, operations_of, tool_path
from web.api.output_fields import OutputFields
from web.api.values import API
from web.docs.openapi_bodies import RequestBodies
from web.http.handler import BaseHandler
from web.routes import PAGE_RESOURCES, TRIAL_RESOURCES, api_routes, documented_operations
from web.services.webhooks.public_addresses import Refusal

_ROOT = Path(__file__).parents[3]
_VERBS = ("get", "post", "put", "patch", "delete")
_NOT_OF_THE_API = {
    "email_taken",
    "none",
    "previews",
    "signed_in_changed",
    "trials",
    "too_large",
}  # of pages and commands
_SUBJECT_AND_VERB = re.compile(
    "(account|batches|conversions|credits|deliveries|files|formats|health|jobs|keys|links|openapi|presets|readiness"
    "|stripeEvents|tools|usage|version|webhookSecret|webhooks)"
    "(AddFile|Cancel|Convert|Create|Delete|Download|DownloadZip|Follow|Get|List|Purchase|Receive|Redeliver|Register"
    "|Replace|Revoke|Rotate|Save|Test|Upload|Verify)"
)
_PLENTY = 10_000_000  # requests a minute
# A number of requests to every operation does not depend on the load of the machine, as a duration does.
_EXAMPLES_PER_SECOND = 0.2
_SEED = "1"  # the same requests in each quick run; longer runs search for others
_QUICK = 5  # seconds
_QUICK_PHASES = "examples,fuzzing,stateful"  # The limits of each value take longest: --long.


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in published()["paths"].items():
        for verb in _VERBS:
            if verb in item:
                yield path, verb, item[verb]


def _models() -> set[type[RequestModel]]:
    """The request models that operations use."""
    operations = [documented.operation for documented in documented_operations(load_registry())]
    operations += [operation for _, handler in TRIAL_RESOURCES for operation in operations_of(handler).values()]
    found = {model for op in operations for model in (op.query, op.headers, op.json, *_form_models(op.form))}
    return {model for model in found if model is not None}


def _form_models(form: FormFields | None) -> tuple[type[RequestModel] | None, ...]:
    return () if form is None else (form.fields, form.urls)


def _subclasses(model: type[RequestModel]) -> set[type[RequestModel]]:
    return {model} | {inner for direct in model.__subclasses__() for inner in _subclasses(direct)}


def _verbs(handler: type[BaseHandler]) -> set[str]:
    return {verb.lower() for verb in handler.methods} & {*_VERBS}


def test_the_document_is_valid() -> None:
    assert published()["openapi"].startswith("3.1.")
    validate(published())


def test_every_verb_of_every_path_is_in_it() -> None:
    there = {route.label: _verbs(handler) for _, handler, route in api_routes(load_registry())}
    documented = {
        ("" if "servers" in item else API) + re.sub(r"{\w+}", "{}", path): {*item} & {*_VERBS}
        for path, item in published()["paths"].items()
    }
    tools = [name for name in load_registry().tools if name.startswith("pdf-")]
    aliases = {f"{API}/tools/{name}{form}" for name in tools for form in ("", JSON_FORM)}
    assert {path: verbs for path, verbs in there.items() if path not in aliases} == documented
    assert aliases <= {*there}
    assert all(documented[path] for path in documented)
    assert not any(pattern.startswith(API) or operations_of(handler) for pattern, handler in PAGE_RESOURCES)


def test_all_components_are_used() -> None:
    ids = [operation["operationId"] for _, _, operation in _operations()]
    assert sorted(ids) == sorted({*ids})
    assert {tag for _, _, operation in _operations() for tag in operation["tags"]} == {
        tag["name"] for tag in published()["tags"]
    }
    written = str(published())
    for kind, names in published()["components"].items():
        if kind != "securitySchemes":
            unused = {name for name in names if f"#/components/{kind}/{name}'" not in written}
            assert unused <= {"MethodNotAllowedError"}
    assert all(operation["summary"] for _, _, operation in _operations())


def test_ids_are_a_subject_and_a_verb() -> None:
    """Tools have the words of their ids; without a subject are only the conversion, and what it would do."""
    tools = {camel_case(name) for name in load_registry().tools}
    ids = {operation["operationId"].removesuffix("ToJson") for _, _, operation in _operations()}
    assert tools <= ids
    assert {one for one in ids - tools if not re.fullmatch(_SUBJECT_AND_VERB, one)} == {"convert", "inspect"}


def test_results_and_jobs_are_told_apart_by_their_kind() -> None:
    accepting = [operation["responses"] for _, _, operation in _operations() if "202" in operation["responses"]]
    for status, kind in (("200", "result"), ("202", "job")):
        medias = [media for responses in accepting for media in responses[status]["content"].values()]
        envelopes = [media["schema"]["properties"] for media in medias if "properties" in media["schema"]]
        names = {envelope["data"]["$ref"].rpartition("/")[2] for envelope in envelopes}
        assert names
        assert all(_component(name)["properties"]["kind"]["const"] == kind for name in names)
        assert all("kind" in _component(name)["required"] for name in names)


def test_every_request_model_belongs_to_an_operation() -> None:
    used = {base for model in _models() for base in model.__mro__}
    models = {model for model in _subclasses(RequestModel) if not model.__module__.startswith("web.agents.")}
    assert models - {EmailFields, OutputFields} <= used


@pytest.mark.parametrize("model", sorted(_models(), key=str))
def test_a_request_model_accepts_its_examples(model: type[RequestModel]) -> None:
    fields = describe(model)
    for field in fields:
        assert jsonschema_rs.is_valid(dict(field.schema), field.example)
        assert field.description
    examples = {field.name: field.example for field in fields}
    validate_fields(model, examples)
    texts = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in examples.items()
        if not isinstance(value, list)
    }
    if len(texts) == len(examples):
        validate_fields(model, texts, from_text=True)


def test_examples_match_their_schemas() -> None:
    responses = published()["components"]["responses"].items()
    by_pointer = {f"#/components/responses/{name}": response for name, response in responses}
    for path, verb, operation in _operations():
        for status, response in operation["responses"].items():
            by_pointer[pointer_of_response(path, verb, status)] = response
    for pointer, response in by_pointer.items():
        media = response.get("content", {}).get("application/json")
        if media is not None:
            examples = [one["value"] for one in media.get("examples", {}).values()] or [media["example"]]
            for example in examples:
                validator_of(pointer).validate(example)


def test_every_code_and_every_reason_is_in_it() -> None:
    documented = {reason for description in ERROR_CATALOGUE.values() for reason in description.reasons}
    assert documented == _reasons() - _NOT_OF_THE_API


def _reasons() -> set[str]:
    """All reasons in the source code, including generated ones."""
    found = {"not_a_pdf", "not_a_picture", "not_a_pdf_or_picture", "frames", "pages", "invalid_url", *get_args(Refusal)}
    for folder in ("engine", "plugins", "storage", "web"):
        for path in (_ROOT / folder).rglob("*.py"):
            source = path.read_text()
            if re.search("reason|PydanticCustomError|OutgoingError", source):  # to parse all would take seconds
                for node in ast.walk(ast.parse(source)):
                    found |= set(_reasons_in(node))
    return found


def _reasons_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.keyword) and node.arg == "reason":
        yield from _texts(node.value)
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("PydanticCustomError", "OutgoingError"):
        yield from _texts(node.args[0])
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {getattr(inner, "id", "") for target in targets for inner in ast.walk(target)}
        if names & {"reason", "default_reason"}:
            yield from _texts(node.value)
    elif isinstance(node, ast.FunctionDef):
        for argument, default in zip(node.args.args[::-1], node.args.defaults[::-1], strict=False):
            yield from _texts(default) if argument.arg == "reason" else ()


def _texts(node: ast.AST) -> Iterator[str]:
    """The string constants that the expression may evaluate to."""
    if isinstance(node, ast.Constant) and re.fullmatch("[a-z_]+", str(node.value)):
        yield str(node.value)
    for inner in ast.iter_child_nodes(node) if isinstance(node, ast.IfExp | ast.BoolOp | ast.Tuple) else ():
        yield from _texts(inner)


class TestOptions:
    """Options are components, so that generated clients have one type of them, and one of each enumeration."""

    def test_are_declared_once(self) -> None:
        declared, reference = {*load_registry().options}, {"$ref": "#/components/schemas/ConvertOptions"}
        bodies = [body for _, _, operation in _operations() if (body := _body(operation)) is not None]
        conversions = [body["allOf"] for body in bodies if reference in body.get("allOf", ())]
        assert {*_component("ConvertOptions")["properties"]} == declared
        assert len(conversions) == 5  # /convert, /convert/json, /convert/inspect, of a file and of a batch
        assert all(len(parts) == 2 and not declared & {*parts[0]["properties"]} for parts in conversions)
        assert all(("unevaluatedProperties" if "allOf" in body else "additionalProperties") in body for body in bodies)

    def test_of_tools_and_their_json(self) -> None:
        paths = published()["paths"]
        for name, tool in load_registry().tools.items():
            path = tool_path(tool)
            bodies = [_body(paths[one]["post"]) or {} for one in (path, path + JSON_FORM)]
            (component,) = {body["allOf"][1]["$ref"].rpartition("/")[2] for body in bodies}
            options = load_registry().tool_options(name)
            assert {*_component(component)["properties"]} == {*options}
            required = [name for name, option in options.items() if option.required]
            assert _component(component).get("required", []) == required

    def test_enumerations_have_names(self) -> None:
        schemas = published()["components"]["schemas"]
        groups = {name: part["properties"] for name, part in schemas.items() if name.endswith("Options")}
        assert not any("enum" in option for options in groups.values() for option in options.values())
        fits = [groups[name]["fit"]["$ref"] for name in ("ConvertOptions", "PdfFromImagesOptions")]
        assert fits == [f"#/components/schemas/{name}" for name in ("Fit", "PdfFromImagesFit")]
        assert _component("Fit")["enum"] == ["inside", "outside", "cover", "contain", "fill"]
        color_spaces = [groups[name]["color_space"]["$ref"] for name in ("ConvertOptions", "PdfCompressOptions")]
        assert color_spaces == [f"#/components/schemas/{name}" for name in ("ColorSpace", "PdfCompressColorSpace")]

    def test_a_name_that_is_taken_is_another(self) -> None:
        (convert,) = (op for op in documented_operations(load_registry()) if op.operation.id == "convert")
        bodies = RequestBodies({"Fit"})
        assert bodies.of(convert.operation)
        assert bodies.components["ConvertFit"] == _component("Fit")
        assert "Fit" not in bodies.components


def _component(name: str) -> dict[str, Any]:
    found: dict[str, Any] = published()["components"]["schemas"][name]
    return found


def _body(operation: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of the body of a request."""
    content = operation.get("requestBody", {}).get("content", {})
    return next((dict(media["schema"]) for media in content.values()), None)


class TestHeaders:
    def test_common_headers(self, server: Running) -> None:
        sent = {name.lower() for name in http.get(f"{server.url}/healthz").headers}
        assert {name.lower() for name in COMMON_HEADERS} <= sent
        exposed = common_headers("req_0")["Access-Control-Expose-Headers"].split(", ")
        assert {*exposed} <= {*HEADERS}

    def test_request_headers_are_allowed_by_cors(self) -> None:
        documented = {
            parameter["name"]
            for _, _, operation in _operations()
            for parameter in operation.get("parameters", [])
            if parameter["in"] == "header"
        }
        accepted = {*PREFLIGHT_HEADERS["Access-Control-Allow-Headers"].split(", ")}
        assert accepted - documented == {"Accept", "Authorization", "Content-Type"}
        assert documented - accepted == {"Stripe-Signature"}

    def test_all_of_them_are_sent(self, servers: Servers, data_dir: Path) -> None:
        with servers.running(data_dir) as server:  # a new server: no other test has used up its limit of invalid keys
            self._all_are_sent(server)

    def _all_are_sent(self, server: Running) -> None:
        made = server.convert(image(), headers={"Accept": "application/json", "Idempotency-Key": "headers"})
        path = made.json()["data"]["download_url"].removeprefix(API)
        answers = [
            server.convert(image(), headers={"Accept": "application/json", "Idempotency-Key": "headers"}),
            server.request("GET", path, headers={"Range": "bytes=0-9"}),
            server.convert(image(), "png", quality="80"),  # with a warning
            server.convert(image(), headers={"Prefer": "respond-async"}),
            server.request("GET", "/account", "wrong"),
            server.request("PATCH", "/account"),
            server.request("GET", f"/verify?token={'0' * 64}", headers={"Accept": "text/html"}),
            server.request("GET", "/account/usage"),
            *(
                server.request("POST", "/register", json={"email": "many@example.test", "name": "Many"})
                for _ in range(6)
            ),
        ]
        sent = {name.lower() for answer in answers for name in answer.headers}
        assert {name.lower() for name in HEADERS} <= sent


class TestServed:
    def test_is_public_and_rate_limited(self, server: Running) -> None:
        first = conforms(http.get(f"{server.api}/openapi.json"))
        assert first.json() == published()
        with http.Client(transport=httpx.HTTPTransport(local_address="127.0.0.10")) as client:  # has sent nothing yet
            answers = [client.get(f"{server.api}/openapi.json") for _ in range(2)]
        left = [int(answer.headers["X-RateLimit-Remaining"]) for answer in answers]
        assert left[1] == left[0] - 1
        headers = {"If-None-Match": first.headers["ETag"]}
        again = conforms(http.get(f"{server.api}/openapi.json", headers=headers))
        assert (again.status_code, again.content) == (304, b"")
        assert "max-age" in again.headers["Cache-Control"]

    def test_for_the_address_that_clients_use(self, servers: Servers, data_dir: Path) -> None:
        with servers.running(data_dir, base_url="https://convert.example/api/v1") as server:
            document = http.get(f"{server.api}/openapi.json").json()
        assert document["servers"] == [{"url": "https://convert.example/api/v1"}]
        assert document["paths"]["/healthz"]["servers"] == [{"url": "https://convert.example"}]


def test_operations_without_a_key_are_marked(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir, limiter=LenientRateLimiter()) as server:
        for path, verb, operation in _operations():
            base = server.url if "servers" in published()["paths"][path] else server.api
            answer = conforms(http.request(verb, base + re.sub(r"{\w+}", "of_nobody", path)))
            assert (answer.status_code == 401) == ("security" not in operation), path


class TestJudging:
    """Undocumented responses are detected."""

    def test_fields(self, server: Running) -> None:
        answer = server.request("GET", "/account")
        changed = answer.json()
        for data in ({**changed["data"], "more": 1}, {**changed["data"], "tier": 3}, {}):
            with pytest.raises(jsonschema_rs.ValidationError):
                conforms(_like(answer, answer.headers, {**changed, "data": data}))

    def test_headers(self, server: Running) -> None:
        answer = server.request("GET", "/account")
        without = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
        for headers in ({**answer.headers, "X-More": "1"}, without):
            with pytest.raises(AssertionError):
                conforms(_like(answer, headers, answer.json()))

    def test_statuses(self, server: Running) -> None:
        answer = server.request("GET", "/account")
        with pytest.raises(AssertionError):
            conforms(httpx.Response(418, headers=answer.headers, request=answer.request))


def _like(answer: httpx.Response, headers: Any, body: object) -> httpx.Response:
    kept = {name: value for name, value in headers.items() if name.lower() != "content-length"}
    return httpx.Response(200, headers=kept, json=body, request=answer.request)


class TestFormsForGenerators:
    """Forms that generators of API clients read correctly. `test_generated_clients.py` runs generators."""

    def test_a_null_has_an_alternative(self) -> None:
        nulls = [schema for schema in _dictionaries(published()) if schema.get("type") == "null"]
        alternatives = [schema["anyOf"] for schema in _dictionaries(published()) if "anyOf" in schema]
        with_null = [alternative for alternative in alternatives if {"type": "null"} in alternative]
        assert len(nulls) == len(with_null)
        assert all("$ref" in first for first, _ in with_null)

    def test_files_are_binary(self) -> None:
        for _, _, operation in _operations():
            for response in operation["responses"].values():
                for media_type, media in response.get("content", {}).items():
                    if media_type in ("application/octet-stream", "image/png"):
                        assert media["schema"] == {"type": "string", "format": "binary"}
                        assert next(iter(response["content"])) == "application/octet-stream"
                    assert media["schema"]

    def test_a_file_and_json_are_separate_operations(self) -> None:
        paths = published()["paths"]
        separate = {path for path in paths if path + JSON_FORM in paths}
        tools = {f"/pdf/{name.removeprefix('pdf-')}" for name in load_registry().tools if name.startswith("pdf-")}
        assert separate == {"/convert", *tools}
        for path in separate:
            accepted = {name for one in paths[path]["post"]["responses"].values() for name in one["content"]}
            assert "application/octet-stream" in accepted
            assert "application/json" not in accepted
            assert [*paths[path + JSON_FORM]["post"]["responses"]["200"]["content"]] == ["application/json"]


def _dictionaries(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _dictionaries(inner)


@pytest.mark.slow
def test_nothing_is_found(
    servers: Servers, data_dir: Path, tmp_path: Path, fuzz_seconds: float, pytestconfig: pytest.Config
) -> None:
    config = tmp_path / "schemathesis.toml"
    hooks = _ROOT / "tests" / "support" / "requests" / "schemathesis_hooks.py"
    config.write_text(f'hooks = "{hooks}"\n')
    for name in ("jpeg", "pdf", "png"):
        (tmp_path / f"sample.{name}").write_bytes(sample(name))
    settings: dict[str, Any] = {"rate_limit_paid": _PLENTY, "rate_limit_anonymous": _PLENTY, "simulated_checkout": True}
    with servers.running(data_dir, port=free_port(), **settings) as server:
        (key,) = http.get(f"{server.api}/account/keys", headers=server.auth).json()["data"]["keys"]
        http.get(f"{server.api}/openapi.json")  # is made once, for which schemathesis waits 10 seconds at most
        found = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", config),
                *("run", f"{server.api}/openapi.json", "--checks", "all", "--continue-on-failure"),
                *("--max-examples", str(ceil(fuzz_seconds * _EXAMPLES_PER_SECOND)), "--no-color"),
                *(("--seed", _SEED) if fuzz_seconds <= _QUICK else ()),
                *(() if pytestconfig.getoption("long") else ("--phases", _QUICK_PHASES)),
                *("--header", f"Authorization: Bearer {server.key}"),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT), "CONVERTD_OWN_KEY_ID": key["key_id"]},
            capture_output=True,
            text=True,
        )
    assert found.returncode == 0, found.stdout + found.stderr
    count = sum(verb in item for item in published()["paths"].values() for verb in ("get", "post", "put", "delete"))
    assert f"Tested: {count - 1}\n" in found.stdout, found.stdout  # all but the document itself
