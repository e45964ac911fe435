"""The executor of all tests that run jobs, and the browser of those that compare colors."""

from collections.abc import AsyncIterator, Iterator
from functools import partial
from ipaddress import ip_network

import pillow_heif.HeifImagePlugin  # noqa: F401, lets Pillow read the results
import pytest
import pytest_asyncio

from engine.executor import LocalExecutor
from engine.network import WebRequest, WebResponse
from tests.support.browser import Screenshots, running_browser, shown_images
from web.services.conversions.task_requests import answer
from web.services.webhooks.outgoing import Outgoing
from web.services.webhooks.public_addresses import AddressRules


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Four workers. Tasks that may make requests reach servers at 127.0.0.2."""
    outgoing = Outgoing(AddressRules(allowed=(ip_network("127.0.0.2"),)))

    async def fetch(request: WebRequest, max_bytes: int, seconds: float) -> WebResponse:
        return await answer(outgoing, request, max_bytes, seconds)

    made = LocalExecutor(4, fetch=fetch)
    await made.start()
    yield made
    await made.close()
    outgoing.close()


@pytest.fixture(scope="module")
def screenshots() -> Iterator[Screenshots]:
    """Takes images of files as Chromium shows them."""
    with running_browser() as browser:
        yield partial(shown_images, browser.new_page())
