"""What the document says about the API as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from web.operations import Tag

SUMMARY = "Converts files between image, document and camera-RAW formats."

SECURITY = "`Authorization: Bearer cvd_live_…`. A key comes with an account: see `POST /register`."

DESCRIPTION = """\
Every conversion that succeeds costs one credit, and is answered with its result: there is nothing to poll.

**Answers.** A success is 200; its JSON has `data` and `meta`. An error has `error` with a `code` for programs, a
`message` for people, and `retryable`. Fields may be added; none is renamed. An unknown path is answered with 404
`not_found`, another verb with 405 `method_not_allowed` and `Allow`. Every path answers to OPTIONS, and to HEAD where it
answers to GET.

**Files or JSON.** Where both are offered, the answer is the file unless `Accept` names `application/json` and no other
type more dearly.

**Order of checks.** Path and verb, key, rate, size, parameters, resource, type of the file, pair of formats, credits.

**Rate limits.** Every answer says in its headers where the limit stands. With a 429, `Retry-After` says how many
seconds to wait; a request that was refused so is not counted.

**Repeating.** With an `Idempotency-Key` a request that costs credits can be sent again safely for 24 hours.

**Times** are `YYYY-MM-DD HH:MM:SS` in UTC. What is stored is erased when it expires, and then answered with 404.
"""

_TAGS = {
    "Conversion": "A file in, the converted file out.",
    "Files": "Store a file, convert it by its id, fetch the result.",
    "Batches": "Many files, converted in one call.",
    "PDF": "Merge documents, delete pages.",
    "Catalogue": "What can be converted into what on this server, without a key.",
    "Account": "Balance, limits, usage and keys.",
    "Credits": "Packs of credits, bought at a payment provider.",
    "Registration": "How to come by a key.",
    "Service": "How the service is, and what runs there.",
}

TAGS: Mapping[str, str] = MappingProxyType({name: _TAGS[name] for name in get_args(Tag)})
