"""Options and fixtures of all tests."""

from __future__ import annotations

import pytest

from tests.corpus import CORPUS, load_corpus


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--corpus",
        choices=("once", "all"),
        default="once",
        help="convert every file of the corpus to one of its outputs (once), or to all",
    )


def pytest_report_header() -> str:
    return (
        f"corpus: {len(load_corpus())} files" if CORPUS.is_dir() else "corpus: not here, its tests have nothing to do"
    )
