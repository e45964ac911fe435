"""What schemathesis has to be told of the API. It loads this module itself."""

from __future__ import annotations

import os
from typing import Any

import schemathesis
from hypothesis import strategies as st
from schemathesis import Case, HookContext
from schemathesis.core.failures import Failure
from schemathesis.core.transport import Response

from tests.support.samples import sample

_OWN_KEY = os.environ["CONVERTD_OWN_KEY_ID"]
_REFUSED = "ST202"  # what the schema allows
_KEYLESS = ("ST203", "ST401")  # what has no key, and not 401 for an answer: 429, where that comes too often
_CODES = {"invalid_file_type", "unsupported_conversion", "idempotency_key_reused", "range_not_satisfiable"}
_REASONS = {"not_an_integer"}  # to JSON Schema 1.0 is one
_PARAMS = {
    "pages",  # those that the file has
    "period",  # days that there are
    "files[]",  # of which schemathesis makes only one, because they have a content type
    "output_format",  # which it also leaves empty
    "Stripe-Signature",
}

schemathesis.openapi.media_type("application/pdf", st.just(sample("pdf")))
schemathesis.openapi.media_type(
    "application/octet-stream", st.sampled_from([sample("png"), sample("jpeg"), sample("pdf")]) | st.binary()
)


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Keeps the key with which all this is done."""
    if (case.path_parameters or {}).get("key_id") == _OWN_KEY:
        case.path_parameters["key_id"] = "key_of_nobody"


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """A refusal is right where no schema can tell what is taken."""
    if failure.code in _KEYLESS:
        return "429" not in failure.message
    if failure.code != _REFUSED:
        return True
    error = response.json()["error"]
    return error["code"] not in _CODES and error.get("reason") not in _REASONS and error.get("param") not in _PARAMS
