"""Hooks of schemathesis, which loads this module itself. Its working directory contains the sample files."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, HookContext
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response

_OWN_KEY = os.environ["CONVERTD_OWN_KEY_ID"]
_REFUSED = "ST202"  # a value that the schema allows
_ACCEPTED = "ST201"  # a value that the schema forbids
_SERVER_ERROR = "ST101"
_SCHEMA = "ST108"
_NOT_FOUND = "ST302"  # a resource that was created
_KEYLESS = ("ST203", "ST401")  # a request without a key gets 429 instead of 401 if there are too many
_CODES = {"invalid_file_type", "unsupported_conversion", "idempotency_key_reused", "range_not_satisfiable"}
_REASONS = {
    "not_an_integer",  # 1.0 is an integer in JSON Schema
    "pixels",  # the size of an image depends on several options
    *("exclusive", "nothing_found"),  # depend on other options, and on what is in the file
    *("too_many_keys", "too_many"),  # earlier requests have created them
}
_PARAMS = {
    *("bit_depth", "width", "height", "color_space"),  # depend on the output format
    *("watermark", "output_profile"),  # only the ids of files of the account are valid
    *("background", "color"),  # only names of colors are valid
    *("crop", "pad"),  # only parts of the image are valid, and only as much as an image can have
    "pages",  # only pages of the file are valid
    "language",  # only those that are installed are valid
    *("title", "user_password", "every", "text"),  # one of several options is required
    *("allow", "angle", "margin"),  # only some names, 90 but not 90.0, and only what leaves space for the image
    "outline",
    "outputs",  # in a form, schemathesis sends a list as several fields instead of JSON
    "period",  # only days of the calendar are valid
    "files[]",  # schemathesis sends only one, because the field has a content type
    "output_format",  # may be empty in generated requests
    *("file", "url", "urls", "url_headers"),  # either a file is required or a URL that leads to one
    *("export_url", "export_headers", "webhook_url"),  # only public URLs are valid, and only headers of requests
    "Stripe-Signature",
}

_PNG, _JPEG, _PDF = (Path(f"sample.{name}").read_bytes() for name in ("png", "jpeg", "pdf"))
schemathesis.openapi.format("uri", st.sampled_from(["http://127.0.0.1/a.png", "ftp://media.example/", "https://"]))
schemathesis.openapi.media_type("application/pdf", st.just(_PDF))
schemathesis.openapi.media_type("application/octet-stream", st.sampled_from([_PNG, _JPEG, _PDF]) | st.binary())


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Keeps the API key of the test, which must not be revoked."""
    if (case.path_parameters or {}).get("key_id") == _OWN_KEY:
        case.path_parameters["key_id"] = "key_of_nobody"


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """Accepts a refusal for constraints that no schema can express."""
    if failure.code in _KEYLESS:
        return "429" not in failure.message
    if failure.code == _ACCEPTED:
        body = response.request.body
        if not isinstance(body, bytes):
            return True
        if case.operation.path.endswith("/convert") and re.search(rb":\s*null\b", body):  # as if it were not given
            return False
        # The form has another name for the file, which schemathesis does not send.
        return re.findall(rb'form-data; name="(.*?)"', body) != [b"file"]
    if failure.code == _SERVER_ERROR:  # no file can be as small, or no server receives it
        expected = ("target_unreachable", "export_failed")
        return bool(response.status_code != 500 or response.json()["error"].get("reason") not in expected)
    if failure.code == _SCHEMA:  # a job that was asked for in place of a file, and events, which no schema describes
        headers = {name.lower(): str(value) for name, value in response.headers.items()}
        path = case.operation.path
        is_file = path == "/convert" or (path.startswith(("/pdf/", "/tools/")) and not path.endswith("/json"))
        return not (is_file and "preference-applied" in headers) and "event-stream" not in headers["content-type"]
    if failure.code == _NOT_FOUND:  # nothing has been converted yet
        return bool(response.json()["error"].get("reason") != "not_processed")
    if failure.code != _REFUSED:
        return True
    error = response.json()["error"]
    return error["code"] not in _CODES and error.get("reason") not in _REASONS and error.get("param") not in _PARAMS
