"""Requests as bytes: malformed ones, ones to be refused, and odd ones to be served. `KEY` stands for an API key."""

from __future__ import annotations

from tests.support.web_samples import FILE, FORM, TARGET, form, part, picture

BODY = form(FILE, TARGET)


def get(target: bytes = b"/healthz", *, verb: bytes = b"GET", version: bytes = b"HTTP/1.1", more: bytes = b"") -> bytes:
    return verb + b" " + target + b" " + version + b"\r\nHost: here\r\n" + more + b"\r\n"


def post(framing: bytes, body: bytes = b"") -> bytes:
    head = f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: KEY\r\nContent-Type: {FORM['Content-Type']}"
    return head.encode() + b"\r\n" + framing + b"\r\n" + body


def chunked(body: bytes) -> bytes:
    return post(b"Transfer-Encoding: chunked\r\n", body)


def upload(disposition: str, content: bytes = picture()) -> bytes:
    body = form(part(content, disposition), TARGET)
    return post(b"Content-Length: %d\r\n" % len(body), body)


MALFORMED = {
    "nothing": b"\r\n\r\n",
    "preface-of-http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "nul-in-target": get(b"/healthz\0"),
    "nul-in-header": get(more=b"X: a\0b\r\n"),
    "cr-in-header": get(more=b"X: a\rb\r\n"),
    "space-in-header-name": get(more=b"X y: a\r\n"),
    "space-before-colon": get(more=b"X : a\r\n"),
    "hosts": get(more=b"Host: there\r\n"),
    "host-of-two-words": b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n",
    "absolute-target-without-sense": get(b"http://[::1/healthz"),
    "long-url": get(b"/" + b"x" * 4096),
    "long-header": get(more=b"X: " + b"x" * 16_384 + b"\r\n"),
    "headers-without-end": b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000,
    "length-negative": post(b"Content-Length: -1\r\n"),
    "length-with-sign": post(b"Content-Length: +1\r\n"),
    "length-hexadecimal": post(b"Content-Length: 0x10\r\n"),
    "length-of-5000-digits": post(b"Content-Length: " + b"9" * 5000 + b"\r\n"),
    "lengths": post(b"Content-Length: 4\r\nContent-Length: 5\r\n"),
    "length-and-chunks": post(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "gzip-and-chunks": post(b"Transfer-Encoding: gzip, chunked\r\n"),
    "chunks-twice": post(b"Transfer-Encoding: chunked\r\n" * 2, b"0\r\n\r\n"),
    "chunk-negative": chunked(b"-1\r\n"),
    "chunk-line-long": chunked(b"1" * 100 + b"\r\n"),
    "chunk-huge": chunked(b"f" * 16 + b"\r\n" + b"x" * 1000),
    "chunk-without-end": chunked(b"4\r\nabcdXX"),
}


REFUSED = {
    "verb-in-small-letters": (get(verb=b"get"), 405, "method_not_allowed"),
    "verb-long": (get(verb=b"B" * 5000), 405, "method_not_allowed"),
    "connect": (get(b"here:80", verb=b"CONNECT"), 404, "not_found"),
    "asterisk": (get(b"*", verb=b"OPTIONS"), 404, "not_found"),
    "slashes": (get(b"//healthz"), 404, "not_found"),
    "trailing-slash": (get(b"/healthz/"), 404, "not_found"),
    "dots": (get(b"/api/../healthz"), 404, "not_found"),
    "dots-encoded": (get(b"/api/%2e%2e/healthz"), 404, "not_found"),
    "slash-encoded": (get(b"/api/v1/files/a%2fb/download", more=b"Authorization: KEY\r\n"), 404, "not_found"),
    "query-twice": (
        get(b"/api/v1/account/usage?period=2026-11&period=x", more=b"Authorization: KEY\r\n"),
        400,
        "invalid_parameter",
    ),
    "keys": (get(b"/api/v1/account", more=b"Authorization: KEY\r\nAuthorization: KEY\r\n"), 401, "invalid_api_key"),
    "key-of-bytes": (get(b"/api/v1/account", more=b"Authorization: Bearer \xff\r\n"), 401, "invalid_api_key"),
    "length-huge": (post(b"Content-Length: 1" + b"0" * 30 + b"\r\n"), 413, "file_too_large"),
    "gzip": (post(b"Content-Encoding: gzip\r\nContent-Length: 5\r\n", b"12345"), 400, "invalid_parameter"),
    "no-body": (post(b""), 400, "invalid_parameter"),
    "base64": (
        upload('name="file"; filename="a.jpg"\r\nContent-Transfer-Encoding: base64', b"/9j/4AAQ"),
        400,
        "invalid_file_type",
    ),
    "nested": (
        upload('name="file"\r\nContent-Type: multipart/mixed; boundary=b', b"--b\r\n\r\nx\r\n--b--"),
        400,
        "invalid_file_type",
    ),
    "carriage-return-in-name": (upload('name="file"; filename="a\rb.jpg"'), 400, "invalid_parameter"),
}


SERVED = {
    "http-1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "absolute-target": get(b"http://elsewhere/healthz?a=b"),
    "line-feeds-alone": b"GET /healthz HTTP/1.1\nHost: here\n\n",
    "chunks": chunked(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "length-twice": post(b"Content-Length: %d\r\n" % len(BODY) * 2, BODY),
    "file-as-text": upload('name="file"'),
    "name-of-crlf": upload('name="file"; filename="a%0d%0aX: y.jpg"'),
    "name-over-two-lines": upload('name="file"; filename="a\r\nX-Injected: y.jpg"'),
    "name-of-nul": upload('name="file"; filename="a\0b.jpg"'),
    "name-of-rfc-2047": upload('name="file"; filename="=?utf-8?B?w6Q=?="'),
    "name-of-bad-rfc-5987": upload("name=\"file\"; filename*=utf-8''%ff%fe%ed%a0%80.jpg"),
    "name-of-latin-rfc-5987": upload("name=\"file\"; filename*=iso-8859-1'en'%e4.jpg"),
    "name-up": upload('name="file"; filename="../../.."'),
    "own-request-id": get(more=b"X-Request-Id: injected\r\n"),
}
