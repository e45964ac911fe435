"""What httpx has, for plain HTTP: without the certificates that it would load for every request, in 20 ms."""

from __future__ import annotations

from functools import partial

import httpx

get = partial(httpx.get, verify=False)
post = partial(httpx.post, verify=False)
put = partial(httpx.put, verify=False)
delete = partial(httpx.delete, verify=False)
head = partial(httpx.head, verify=False)
options = partial(httpx.options, verify=False)
request = partial(httpx.request, verify=False)
Client = partial(httpx.Client, verify=False)
AsyncClient = partial(httpx.AsyncClient, verify=False)
