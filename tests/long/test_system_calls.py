"""The system calls that conversions of real files make, beside those that the sandbox allows."""

import pytest

from engine import ConversionError
from engine.registry import load_registry
from tests.support.executors.refusals import EXPECTED_REFUSALS, refused_calls
from tests.support.samples.corpus import Entry, load_corpus

pytestmark = pytest.mark.long

_REGISTRY = load_registry()
_PAIRS = _REGISTRY.catalogue()


@pytest.mark.skipif(not load_corpus(), reason="there is no corpus")
def test_conversions_of_the_corpus_make_no_other_calls() -> None:
    """Every sound or damaged file, to all of its outputs. Those that need the limits of a sandbox are left out."""
    files = [entry for entry in load_corpus() if entry.sound or entry.category == "bad"]

    refused = refused_calls([(str(entry.path), target) for entry in files for target in _targets(entry)])

    assert {call: plans for call, plans in refused.items() if call not in EXPECTED_REFUSALS} == {}


def _targets(entry: Entry) -> list[str]:
    try:
        source = _REGISTRY.identify(entry.path)
    except ConversionError:  # damaged beyond recognition
        return []
    return [plan.target.name for plan in _PAIRS if plan.source is source]
