"""The functions of httpx for plain HTTP, without loading certificates and proxies, which takes 20 ms per request.

Their default timeout is for a busy machine.
"""

from functools import partial
from ssl import PROTOCOL_TLS_CLIENT, SSLContext

import httpx

_TIMEOUT = 60.0  # seconds
_TLS = SSLContext(PROTOCOL_TLS_CLIENT)

get = partial(httpx.get, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
post = partial(httpx.post, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
put = partial(httpx.put, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
delete = partial(httpx.delete, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
head = partial(httpx.head, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
options = partial(httpx.options, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
request = partial(httpx.request, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
Client = partial(httpx.Client, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
AsyncClient = partial(httpx.AsyncClient, verify=_TLS, trust_env=False, timeout=_TIMEOUT)
