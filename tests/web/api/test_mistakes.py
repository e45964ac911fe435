"""Mistakes of people who try the API for the first time, and what the API says about them."""

import base64
from typing import Any

import pytest

from engine.options import unknown_option
from engine.registry import load_registry
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        *(("strip", "metadata"), ("density", "dpi"), ("w", "width"), ("h", "height"), ("q", "quality")),
        *(("resize", "width"), ("format", "output_format"), ("position", "gravity"), ("page", "pages")),
        *(("widht", "width"), ("Max-Bytes", "max_bytes"), ("colour_space", "color_space")),
    ],
)
def test_other_names_of_options(name: str, meant: str) -> None:
    error = unknown_option(name, ["file", "output_format", *load_registry().options])

    assert str(error) == f"There is no parameter {name}. The nearest one is {meant}."
    assert error.details["available"][0] == meant


@pytest.mark.parametrize("name", ["xyz", "callback", "", "token", "api_key"])
def test_nothing_is_named_if_nothing_is_near(name: str) -> None:
    error = unknown_option(name, load_registry().options)

    assert str(error) == f"There is no parameter {name}."
    assert {*error.details["available"]} == load_registry().options.keys()


def test_another_name_is_only_named_where_it_exists() -> None:
    assert str(unknown_option("strip", ["pages", "password"])) == "There is no parameter strip."


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ({"X-API-Key": "KEY"}, "was sent in the header X-API-Key"),
        ({"Authorization": "KEY"}, "was sent without the word Bearer"),
        ({"Authorization": "Basic BASIC"}, "was sent by Basic authentication"),
    ],
)
def test_a_key_in_another_place(server: Running, headers: dict[str, str], found: str) -> None:
    basic = base64.b64encode(f"{server.key}:".encode()).decode()
    sent = {name: value.replace("KEY", server.key).replace("BASIC", basic) for name, value in headers.items()}

    response = http.get(f"{server.api}/account", headers=sent)

    problem(response, 401, "invalid_api_key")
    message = response.json()["error"]["message"]
    assert message == f"The API key {found}; send it in the header Authorization: Bearer YOUR_KEY."
    assert response.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer cvd_live_wrong"}, {"Authorization": "Bearer"}])
def test_a_wrong_key_says_no_more(server: Running, headers: dict[str, str]) -> None:
    response = http.get(f"{server.api}/account", headers=headers)

    assert response.json()["error"]["message"] == "The API key is missing or invalid."


@pytest.mark.parametrize(
    "text",
    ["@photo.jpg", "photo.jpg", "/home/me/photo.jpg", "./my photo.HEIC", "~/a", r"C:\Users\me\photo.jpg", "@a\n"],
)
def test_the_name_of_a_file_instead_of_the_file(server: Running, text: str) -> None:
    for name in (None, "file"):
        response = server.request("POST", "/convert", files={"file": (name, text), "output_format": (None, "png")})
        problem(response, 400, "invalid_parameter", param="file", reason="no_file")
        assert "-F 'file=@photo.jpg'" in response.json()["error"]["message"]


def test_a_form_without_files_in_place_of_one_with_files(server: Running) -> None:
    fields = {"file": "@photo.jpg", "output_format": "png"}
    bodies: tuple[dict[str, Any], ...] = ({"data": fields}, {"json": fields})
    for body in bodies:
        response = server.request("POST", "/convert", **body)
        problem(response, 400, "invalid_parameter", param="file", reason="no_file")


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.txt", b"photo.jpg"), (None, b"two lines:\nphoto.jpg"), (None, b"text " * 300), (None, sample("png"))],
)
def test_files_with_such_content_are_files(server: Running, name: str | None, content: bytes) -> None:
    form = {"file": (name, content), "output_format": (None, "pdf")}

    response = server.request("POST", "/convert", files=form)

    assert response.status_code == 200 or response.json()["error"]["code"] != "invalid_parameter"


def test_the_root_of_the_api_leads_to_its_documentation(server: Running) -> None:
    for path in ("", "/"):
        data = http.get(f"{server.api}{path}").json()["data"]
        assert data["docs_url"].endswith("/docs")
        assert data["openapi_url"].endswith("/api/v1/openapi.json")
    page = http.get(f"{server.api}", headers={"Accept": "text/html"})
    assert (page.status_code, page.headers["Location"]) == (303, "/docs")
    document = http.get(f"{server.url}/openapi.json")
    assert (document.status_code, document.headers["Location"]) == (308, "/api/v1/openapi.json")
