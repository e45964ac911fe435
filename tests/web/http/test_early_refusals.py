"""Requests that are refused before their body arrives, and malformed requests."""

from collections.abc import Iterator

import pytest

from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import FORM, TARGET, part
from tests.support.servers.in_process import Running, eventually, parsed, read_response

MIB = 1 << 20


def test_too_large_is_refused_before_the_body(server: Running) -> None:
    head = f"{server.posting}Content-Type: {FORM['Content-Type']}\r\n"
    response = parsed(server.raw(f"{head}Content-Length: {200 * MIB}\r\n\r\n".encode()))
    problem(response, 413, "file_too_large", reason="bytes", details={"max_file_size": 100 * MIB})


def test_too_large_is_refused_instead_of_100_continue(server: Running) -> None:
    head = f"{server.posting}Expect: 100-continue\r\n"
    with server.connect() as connection:
        connection.sendall(f"{head}Content-Length: 999999999\r\n\r\n".encode())
        problem(parsed(read_response(connection)), 413, "file_too_large")
        assert connection.recv(100) == b""


def test_too_large_while_streaming(server: Running) -> None:
    def body() -> Iterator[bytes]:
        yield TARGET
        yield part(b"", 'name="file"; filename="a.jpg"')[:-2]
        for _ in range(101):
            yield bytes(MIB)

    response = http.post(f"{server.api}/convert", content=body(), headers={**FORM, **server.auth}, timeout=60)
    problem(response, 413, "file_too_large", reason="bytes", retryable=False)
    assert eventually(lambda: not server.work_files())


def test_a_client_that_never_stops_sending_is_cut_off(server: Running) -> None:
    head = f"POST /nothing HTTP/1.1\r\nHost: here\r\nContent-Length: {1 << 40}\r\n\r\n"
    with server.connect() as connection:
        connection.sendall(head.encode())
        problem(parsed(read_response(connection)), 404, "not_found")
        with pytest.raises(ConnectionError):
            connection.sendall(bytes(200 * MIB))


def test_a_request_gets_one_response(server: Running) -> None:
    with server.connect() as connection:
        connection.sendall(b"POST /nothing HTTP/1.1\r\nHost: here\r\nContent-Length: five\r\n\r\n")
        answers = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answers.count(b"HTTP/1.1 ") == 1
    problem(parsed(answers), 404, "not_found")
