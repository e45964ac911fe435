"""The functions of httpx for plain HTTP, without loading certificates, which takes 20 ms per request.

The timeout is long enough for a busy machine.
"""

from functools import partial

import httpx

_SECONDS = 60

get = partial(httpx.get, verify=False, timeout=_SECONDS)
post = partial(httpx.post, verify=False, timeout=_SECONDS)
put = partial(httpx.put, verify=False, timeout=_SECONDS)
delete = partial(httpx.delete, verify=False, timeout=_SECONDS)
head = partial(httpx.head, verify=False, timeout=_SECONDS)
options = partial(httpx.options, verify=False, timeout=_SECONDS)
request = partial(httpx.request, verify=False, timeout=_SECONDS)
Client = partial(httpx.Client, verify=False, timeout=_SECONDS)
AsyncClient = partial(httpx.AsyncClient, verify=False, timeout=_SECONDS)
