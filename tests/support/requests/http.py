"""The functions of httpx for plain HTTP, without loading certificates, which takes 20 ms per request.

Their default timeout is for a busy machine.
"""

from functools import partial

import httpx

_TIMEOUT = 60.0  # seconds

get = partial(httpx.get, verify=False, timeout=_TIMEOUT)
post = partial(httpx.post, verify=False, timeout=_TIMEOUT)
put = partial(httpx.put, verify=False, timeout=_TIMEOUT)
delete = partial(httpx.delete, verify=False, timeout=_TIMEOUT)
head = partial(httpx.head, verify=False, timeout=_TIMEOUT)
options = partial(httpx.options, verify=False, timeout=_TIMEOUT)
request = partial(httpx.request, verify=False, timeout=_TIMEOUT)
Client = partial(httpx.Client, verify=False, timeout=_TIMEOUT)
AsyncClient = partial(httpx.AsyncClient, verify=False, timeout=_TIMEOUT)
