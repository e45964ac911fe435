"""The executor of all tests that run jobs, and the browser of those that compare colors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pillow_heif.HeifImagePlugin  # noqa: F401, lets Pillow read the results
import pytest
import pytest_asyncio

from engine.executor import LocalExecutor
from tests.support.browser import Screenshots, running_browser, shown_pictures


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def executor() -> AsyncIterator[LocalExecutor]:
    """Four workers."""
    made = LocalExecutor(4)
    await made.start()
    yield made
    await made.close()


@pytest.fixture(scope="module")
def screenshots() -> Iterator[Screenshots]:
    """Takes pictures of files as Chromium shows them."""
    with running_browser() as browser:
        yield partial(shown_pictures, browser.new_page())


_SOURCES = {  # of slow encoders in the usual test run, as all sources give them the same pictures
    "avif": ("avif",),
    "eps": ("jpeg",),
    "heic": ("heic",),
}
_TARGETS = {"arw": ("jpeg", "png")}  # of a slow decoder, as all targets are given the same pictures


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that only repeat others with slow encoders, unless all combinations are requested."""
    if config.getoption("--corpus") == "all":
        return
    repeated = [item for item in items if isinstance(item, pytest.Function) and _repeats_others(item)]
    config.hook.pytest_deselected(items=repeated)
    items[:] = [item for item in items if item not in set(repeated)]


def _repeats_others(item: pytest.Function) -> bool:
    values = item.callspec.params if hasattr(item, "callspec") else {}
    if item.path.name == "test_heif_colors.py":
        return item.originalname.startswith(("test_colors_are", "test_wide_colors")) and values["bits"] == 8
    if item.path.name != "test_options_of_pairs.py" or "pair" not in values:
        return False
    pair: Any = values["pair"]
    if pair.trait:  # the options for it are those of the picture, not of the encoder
        return pair.target.name in ("eps", "heic")
    source, target = pair.source.name, pair.target.name
    return source not in _SOURCES.get(target, (source,)) or target not in _TARGETS.get(source, (target,))
