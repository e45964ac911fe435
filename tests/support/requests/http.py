"""The functions of httpx for plain HTTP, without loading certificates, which takes 20 ms per request."""

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
