"""Requests to a service at any URL, by public HTTP alone, and small files to send. Needs no package of the project."""

import re
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

API = "/api/v1"
BOUNDARY = "a-boundary"
_LIMITS = ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset")
_ATTEMPTS = 5
_TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class Keys:
    """API keys. Only of a server that the tests start, they know further ones, and the folder of its mails."""

    main: str
    unverified: str | None = None
    empty: str | None = None
    outbox: Path | None = None


@dataclass(frozen=True)
class Service:
    """The service, `url` is what stands before `/api/v1`."""

    url: str
    keys: Keys
    client: httpx.Client = field(default_factory=lambda: httpx.Client(timeout=_TIMEOUT))

    def send(self, method: str, path: str, key: str | None = "", **options: Any) -> httpx.Response:
        """Sends a request with the main key, another one, or none. Waits if the rate limit is used up.

        Asserts what holds for every response.
        """
        headers = dict(options.pop("headers", {}))
        if key is not None:
            headers.setdefault("Authorization", f"Bearer {key or self.keys.main}")
        for _ in range(_ATTEMPTS):
            response = self.client.request(method, self.url + API + path, headers=headers, **options)
            check_headers(response.headers)
            if response.status_code != 429:
                break
            assert int(response.headers["Retry-After"]) >= 1
            time.sleep(min(60, int(response.headers["Retry-After"])))
        return response

    def data(self, method: str, path: str, key: str | None = "", **options: Any) -> dict[str, Any]:
        """The `data` of a successful response. Asserts its envelope."""
        response = self.send(method, path, key, **options)
        assert response.status_code == 200, response.text
        assert response.headers["Content-Type"].partition(";")[0] == "application/json"
        body = response.json()
        assert body["meta"]["request_id"] == response.headers["X-Request-Id"]
        assert "error" not in body
        assert key is None or isinstance(body["meta"]["credits_remaining"], int)
        found: dict[str, Any] = body["data"]
        return found

    def convert(self, content: bytes, target: str = "png", name: str = "photo.png", **options: Any) -> httpx.Response:
        """Sends POST /convert. `accept` and `key` are no fields of the form."""
        headers = {"Accept": options.pop("accept", "*/*")}
        key, fields = options.pop("key", ""), {"output_format": target, **options}
        return self.send("POST", "/convert", key, files={"file": (name, content)}, data=fields, headers=headers)

    def upload(self, content: bytes, path: str = "/files/upload", name: str = "photo.png") -> dict[str, Any]:
        """Uploads a file."""
        return self.data("POST", path, files={"file": (name, content)})

    def balance(self) -> int:
        """The credits of the account."""
        credits: int = self.data("GET", "/account")["credits_remaining"]
        return credits

    def raw(self, request: bytes, responses: int = 1, *, body_later: bytes = b"") -> list["Raw"]:
        """Sends bytes on a new connection. KEY and HOST stand for their values.

        `body_later` is sent once the server asks for it by 100 Continue, which is not among the responses.
        """
        parts = urlsplit(self.url)
        host, secure = parts.hostname or "", parts.scheme == "https"
        request = request.replace(b"KEY", self.keys.main.encode()).replace(b"HOST", parts.netloc.encode())
        with socket.create_connection((host, parts.port or (443 if secure else 80)), timeout=_TIMEOUT) as plain:
            connection = ssl.create_default_context().wrap_socket(plain, server_hostname=host) if secure else plain
            connection.sendall(request)
            answers: list[Raw] = []
            with connection.makefile("rb") as stream:
                while len(answers) < responses:
                    answer = Raw.read(stream, has_body=not request.startswith(b"HEAD"))
                    if answer.status == 100:
                        connection.sendall(body_later)
                    else:
                        answers.append(answer)
            if secure:
                connection.close()
        if answers[0].status == 429:
            time.sleep(int(answers[0].headers["retry-after"]))
            return self.raw(request, responses, body_later=body_later)
        return answers

    def post(self, form: bytes, path: str = "/convert") -> "Raw":
        """Sends this form."""
        return self.raw(posting(len(form), path=path) + form)[0]


def posting(length: int, more: str = "", boundary: str = BOUNDARY, path: str = "/convert") -> bytes:
    """The head of a request with a form of this length, and more header lines."""
    target = f"POST {API}{path} HTTP/1.1\r\nHost: HOST\r\nAuthorization: Bearer KEY\r\n"
    framing = f"Content-Type: multipart/form-data; boundary={boundary}\r\nContent-Length: {length}\r\n"
    return f"{target}{framing}{more}\r\n".encode()


def part(disposition: str, content: bytes, *headers: str, end: str = "\r\n") -> bytes:
    """A part of a form. `disposition` is what follows `form-data`."""
    lines = [f"--{BOUNDARY}", f"Content-Disposition: form-data{disposition}", *headers, "", ""]
    return end.join(lines).encode() + content + end.encode()


def form(*parts: bytes, end: str = "\r\n") -> bytes:
    """A form of these parts."""
    return b"".join(parts) + f"--{BOUNDARY}--{end}".encode()


@dataclass(frozen=True)
class Raw:
    """A response as it was received. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def read(cls, stream: Any, *, has_body: bool) -> "Raw":
        """Reads one response of a stream."""
        status = int(stream.readline().split()[1])
        headers = {}
        while line := stream.readline().strip():
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        body = b""
        if has_body and status >= 200 and "chunked" in headers.get("transfer-encoding", ""):
            while size := int(stream.readline().split(b";")[0], 16):
                body += stream.read(size)
                stream.readline()
            stream.readline()
        elif has_body and status >= 200:
            body = stream.read(int(headers.get("content-length", 0)))
        return cls(status, headers, body)


def check_headers(headers: Mapping[str, str]) -> None:
    """Asserts the headers that every response has."""
    assert headers["X-Request-Id"]
    assert all(re.fullmatch(r"\d+", headers[name]) for name in _LIMITS)


def refused(response: httpx.Response, status: int, code: str, **expected: object) -> None:
    """Asserts an error."""
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert (error["code"], {name: error.get(name) for name in expected}) == (code, expected)
    assert error["message"]
    assert error["request_id"] == response.headers["X-Request-Id"]
    assert isinstance(error["retryable"], bool)


def png(width: int = 8, height: int = 6) -> bytes:
    """An image of one color."""
    rows = (b"\0" + b"\x40\x80\xc0" * width) * height
    chunks = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows),
        b"IEND": b"",
    }
    framed = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks.items()
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(framed)


def pdf(pages: int = 1) -> bytes:
    """A PDF of empty pages."""
    kids = " ".join(f"{number + 3} 0 R" for number in range(pages))
    objects = ["<< /Type /Catalog /Pages 2 0 R >>", f"<< /Type /Pages /Kids [{kids}] /Count {pages} >>"]
    objects += ["<< /Type /Page /Parent 2 0 R /MediaBox [0 0 200 200] /Resources << >> >>"] * pages
    content, offsets = b"%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        offsets.append(len(content))
        content += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    trailer = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return content + f"{trailer}startxref\n{len(content)}\n%%EOF\n".encode()
