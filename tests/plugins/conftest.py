"""The executor of all tests that run jobs, and the browser of those that compare colors."""

from collections.abc import AsyncIterator, Iterator
from functools import partial

import pillow_heif.HeifImagePlugin  # noqa: F401, lets Pillow read the results
import pytest
import pytest_asyncio

from engine.executor import LocalExecutor
from tests.support.browser import Screenshots, running_browser, shown_images


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Four workers."""
    made = LocalExecutor(4)
    await made.start()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def screenshots() -> Iterator[Screenshots]:
    """Takes images of files as Chromium shows them."""
    with running_browser() as browser:
        yield partial(shown_images, browser.new_page())
