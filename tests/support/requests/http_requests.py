"""Unusual and malformed HTTP requests as bytes."""

from tests.support.samples.forms import FILE, FORM, TARGET, form, image, part

BODY = form(FILE, TARGET)


def get_request(
    target: bytes = b"/healthz", *, verb: bytes = b"GET", version: bytes = b"HTTP/1.1", more: bytes = b""
) -> bytes:
    """Returns a request without a body; `more` is header lines."""
    return verb + b" " + target + b" " + version + b"\r\nHost: here\r\n" + more + b"\r\n"


def post_request(framing: bytes, body: bytes = b"") -> bytes:
    """Returns a POST /convert request. `framing` is header lines; KEY stands for the Authorization value."""
    head = f"POST /api/v1/convert HTTP/1.1\r\nHost: here\r\nAuthorization: KEY\r\nContent-Type: {FORM['Content-Type']}"
    return head.encode() + b"\r\n" + framing + b"\r\n" + body


def chunked_request(body: bytes) -> bytes:
    """Returns a POST /convert request with this raw chunked body."""
    return post_request(b"Transfer-Encoding: chunked\r\n", body)


def upload_request(disposition: str, content: bytes = image()) -> bytes:
    """Returns a POST /convert request with a file part of this disposition."""
    body = form(part(content, disposition), TARGET)
    return post_request(b"Content-Length: %d\r\n" % len(body), body)


MALFORMED: dict[str, bytes] = {
    "nothing": b"\r\n\r\n",
    "no-request": b"GARBAGE\r\n\r\n",
    "no-target": b"GET\r\n\r\n",
    "unknown-version": get_request(version=b"HTTP/9.9"),
    "no-host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "no-colon": get_request(more=b"no colon\r\n"),
    "no-text-in-target": get_request(b"/api/v1/files/%ff/download", more=b"Authorization: KEY\r\n"),
    "preface-of-http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "nul-in-target": get_request(b"/healthz\0"),
    "nul-in-header": get_request(more=b"X: a\0b\r\n"),
    "cr-in-header": get_request(more=b"X: a\rb\r\n"),
    "space-in-header-name": get_request(more=b"X y: a\r\n"),
    "space-before-colon": get_request(more=b"X : a\r\n"),
    "hosts": get_request(more=b"Host: there\r\n"),
    "host-of-two-words": b"GET /healthz HTTP/1.1\r\nHost: a b\r\n\r\n",
    "absolute-target-without-sense": get_request(b"http://[::1/healthz"),
    "long-url": get_request(b"/" + b"x" * 4096),
    "long-header": get_request(more=b"X: " + b"x" * 16_384 + b"\r\n"),
    "headers-without-end": b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000,
    "length-negative": post_request(b"Content-Length: -1\r\n"),
    "length-with-sign": post_request(b"Content-Length: +1\r\n"),
    "length-hexadecimal": post_request(b"Content-Length: 0x10\r\n"),
    "length-of-5000-digits": post_request(b"Content-Length: " + b"9" * 5000 + b"\r\n"),
    "lengths": post_request(b"Content-Length: 4\r\nContent-Length: 5\r\n"),
    "length-and-chunks": post_request(b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "unknown-coding": post_request(b"Transfer-Encoding: cake\r\n"),
    "gzip-and-chunks": post_request(b"Transfer-Encoding: gzip, chunked\r\n"),
    "chunks-twice": post_request(b"Transfer-Encoding: chunked\r\n" * 2, b"0\r\n\r\n"),
    "chunk-not-hexadecimal": chunked_request(b"not hexadecimal\r\n"),
    "chunk-negative": chunked_request(b"-1\r\n"),
    "chunk-line-long": chunked_request(b"1" * 100 + b"\r\n"),
    "chunk-huge": chunked_request(b"f" * 16 + b"\r\n" + b"x" * 1000),
    "chunk-without-end": chunked_request(b"4\r\nabcdXX"),
}
"""Requests with the response 400 invalid_parameter, reason malformed."""

REFUSED: dict[str, tuple[bytes, int, str]] = {
    "verb-in-small-letters": (get_request(verb=b"get"), 405, "method_not_allowed"),
    "verb-long": (get_request(verb=b"B" * 5000), 405, "method_not_allowed"),
    "connect": (get_request(b"here:80", verb=b"CONNECT"), 404, "not_found"),
    "asterisk": (get_request(b"*", verb=b"OPTIONS"), 404, "not_found"),
    "slashes": (get_request(b"//healthz"), 404, "not_found"),
    "trailing-slash": (get_request(b"/healthz/"), 404, "not_found"),
    "dots": (get_request(b"/api/../healthz"), 404, "not_found"),
    "dots-encoded": (get_request(b"/api/%2e%2e/healthz"), 404, "not_found"),
    "slash-encoded": (get_request(b"/api/v1/files/a%2fb/download", more=b"Authorization: KEY\r\n"), 404, "not_found"),
    "query-twice": (
        get_request(b"/api/v1/account/usage?period=2026-11&period=x", more=b"Authorization: KEY\r\n"),
        400,
        "invalid_parameter",
    ),
    "keys": (
        get_request(b"/api/v1/account", more=b"Authorization: KEY\r\nAuthorization: KEY\r\n"),
        401,
        "invalid_api_key",
    ),
    "key-of-bytes": (get_request(b"/api/v1/account", more=b"Authorization: Bearer \xff\r\n"), 401, "invalid_api_key"),
    "length-huge": (post_request(b"Content-Length: 1" + b"0" * 30 + b"\r\n"), 413, "file_too_large"),
    "gzip": (post_request(b"Content-Encoding: gzip\r\nContent-Length: 5\r\n", b"12345"), 400, "invalid_parameter"),
    "no-body": (post_request(b""), 400, "invalid_parameter"),
    "base64": (
        upload_request('name="file"; filename="a.jpg"\r\nContent-Transfer-Encoding: base64', b"/9j/4AAQ"),
        400,
        "invalid_file_type",
    ),
    "nested": (
        upload_request('name="file"\r\nContent-Type: multipart/mixed; boundary=b', b"--b\r\n\r\n\0\r\n--b--"),
        400,
        "invalid_file_type",
    ),
    "carriage-return-in-name": (upload_request('name="file"; filename="a\rb.jpg"'), 400, "invalid_parameter"),
}
"""Well-formed requests that are refused, with the status and the code of the response."""

SERVED: dict[str, bytes] = {
    "http-1.0": b"GET /healthz HTTP/1.0\r\n\r\n",
    "absolute-target": get_request(b"http://elsewhere/healthz?a=b"),
    "line-feeds-alone": b"GET /healthz HTTP/1.1\nHost: here\n\n",
    "chunks": chunked_request(b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)),
    "length-twice": post_request(b"Content-Length: %d\r\n" % len(BODY) * 2, BODY),
    "file-as-text": upload_request('name="file"'),
    "name-of-crlf": upload_request('name="file"; filename="a%0d%0aX: y.jpg"'),
    "name-over-two-lines": upload_request('name="file"; filename="a\r\nX-Injected: y.jpg"'),
    "name-of-nul": upload_request('name="file"; filename="a\0b.jpg"'),
    "name-of-rfc-2047": upload_request('name="file"; filename="=?utf-8?B?w6Q=?="'),
    "name-of-bad-rfc-5987": upload_request("name=\"file\"; filename*=utf-8''%ff%fe%ed%a0%80.jpg"),
    "name-of-latin-rfc-5987": upload_request("name=\"file\"; filename*=iso-8859-1'en'%e4.jpg"),
    "name-up": upload_request('name="file"; filename="../../.."'),
    "own-request-id": get_request(more=b"X-Request-Id: injected\r\n"),
}
"""Unusual requests with the response 200."""
