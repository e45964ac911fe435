"""Malformed and unusual HTTP requests: each gets an error in the envelope, and the next request succeeds."""

import re
from contextlib import suppress

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.requests import http
from tests.support.requests.checks import dressed, problem
from tests.support.requests.http_requests import BODY, MALFORMED, REFUSED, SERVED, get_request, post_request
from tests.support.servers.in_process import Running, eventually, parsed, read_response


def sent(server: Running, request: bytes) -> httpx.Response:
    """Returns the response. Asserts that the server still works afterwards."""
    length = len(request.partition(b"\r\n\r\n")[2])
    request = request.replace(b"Authorization: KEY", b"Authorization: Bearer " + server.key.encode())
    assert len(request.partition(b"\r\n\r\n")[2]) == length
    response = parsed(server.raw(request))
    assert http.get(f"{server.url}/healthz").status_code == 200
    assert eventually(lambda: not server.work_files())
    return response


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed(server: Running, name: str) -> None:
    response = sent(server, MALFORMED[name])
    problem(response, 400, "invalid_parameter", reason="malformed")


@pytest.mark.parametrize("name", REFUSED)
def test_refused(server: Running, name: str) -> None:
    request, status, code = REFUSED[name]
    problem(sent(server, request), status, code)


@pytest.mark.parametrize("name", SERVED)
def test_served(server: Running, name: str) -> None:
    response = sent(server, SERVED[name])
    assert response.status_code == 200
    dressed(response)
    assert "injected" not in str(response.headers).lower()


def test_head_has_no_body(server: Running) -> None:
    response = http.head(f"{server.api}/formats")
    assert (response.status_code, response.content) == (200, b"")
    assert int(response.headers["Content-Length"]) > 0


def test_pipelined_requests_are_answered_in_order(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(
            get_request() + get_request(b"/nothing") + get_request(b"/version", more=b"Connection: close\r\n")
        )
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert re.findall(rb"HTTP/1.1 (\d+)", answers) == [b"200", b"404", b"200"]


@pytest.mark.parametrize("method", [b"FOO", b"get", b"FINISH", b"UNKNOWN", b"TRACE"])
@pytest.mark.parametrize("framing", [b"", b"Content-Length: 200000\r\n", b"Transfer-Encoding: chunked\r\n"])
def test_a_connection_stays_usable_after_an_unknown_method(server: Running, method: bytes, framing: bytes) -> None:
    bodies = {b"": b"", b"Content-Length: 200000\r\n": b"x" * 200_000}
    refused = get_request(b"/api/v1/convert", verb=method, more=framing) + bodies.get(framing, b"2\r\nab\r\n0\r\n\r\n")
    with server.connect() as connection:
        connection.sendall(refused)
        problem(parsed(read_response(connection)), 405, "method_not_allowed")
        connection.sendall(get_request(b"/version"))
        assert parsed(read_response(connection)).status_code == 200


def test_100_continue_is_sent_after_the_checks(server: Running) -> None:
    wrong = post_request(b"Expect: 100-continue\r\nContent-Length: 10\r\n").replace(b"KEY", b"Bearer none")
    with server.connect() as connection:
        connection.sendall(wrong)
        problem(parsed(connection.recv(65_536)), 401, "invalid_api_key")
    right = post_request(b"Expect: 100-continue\r\nContent-Length: %d\r\n" % len(BODY))
    with server.connect() as connection:
        connection.sendall(right.replace(b"KEY", b"Bearer " + server.key.encode()))
        assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
        connection.sendall(BODY)
        assert connection.recv(20).startswith(b"HTTP/1.1 200 ")


@settings(max_examples=60, deadline=None)
@given(noise=st.binary(min_size=1, max_size=40), at=st.integers(0, 250))
def test_noise_gets_the_envelope_or_nothing(server: Running, noise: bytes, at: int) -> None:
    request = post_request(b"Content-Length: 40\r\n", b"x" * 40)
    request = request[:at] + noise + request[at + len(noise) :]
    with server.connect() as connection, suppress(ConnectionError):
        connection.settimeout(0.05)  # an incomplete request gets no response yet
        connection.sendall(request)
        with suppress(TimeoutError):
            # Noise may split a request in two: each gets a response.
            for text in re.split(rb"(?=HTTP/1\.1 \d{3} )", connection.recv(65_536))[1:]:
                response = parsed(text)
                assert response.status_code < 500
                assert not response.content or response.json()["error"]["request_id"]
