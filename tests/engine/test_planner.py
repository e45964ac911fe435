"""The cheapest path, compared with an exhaustive search."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from engine.conversions import AnyConversion, Conversion, Loss, Tool
from engine.executor import Task
from engine.formats import AnyFormat, Format
from engine.planner import Plan, cheapest_paths
from plugins.formats.png import PNG

_FORMATS = [Format(name, bytes) for name in "abcde"]
_steps = st.builds(
    Conversion[bytes, bytes],
    source=st.sampled_from(_FORMATS),
    target=st.sampled_from(_FORMATS),
    run=st.just(lambda payload: payload),
    loss=st.sampled_from(Loss),
    cost=st.integers(1, 9).map(float),
    terminal=st.booleans(),
)


_Path = tuple[AnyConversion, ...]


def _walks(graph: dict[AnyFormat, list[AnyConversion]], path: _Path) -> Iterator[_Path]:
    """Every continuation of `path` that visits no format twice."""
    yield path
    left = {step.source for step in path}
    if not path[-1].terminal and path[-1].target not in left:
        for step in graph.get(path[-1].target, []):
            yield from _walks(graph, (*path, step))


def _price(path: _Path) -> tuple[int, float]:
    return sum(step.loss for step in path), sum(step.cost for step in path)


@given(st.lists(_steps, max_size=12))
def test_paths_are_the_cheapest(steps: list[AnyConversion]) -> None:
    graph: dict[AnyFormat, list[AnyConversion]] = {}
    for step in steps:
        graph.setdefault(step.source, []).append(step)

    for source in _FORMATS:
        every = [walk for step in graph.get(source, []) for walk in _walks(graph, (step,))]
        found = cheapest_paths(graph, source)

        assert set(found) == {walk[-1].target for walk in every}
        for target, path in found.items():
            assert path[0].source == source
            assert all(before.target == after.source for before, after in pairwise(path))
            assert _price(path) == min(_price(walk) for walk in every if walk[-1].target == target)


def test_no_path_continues_after_a_terminal_step() -> None:
    a, b, c, *_ = _FORMATS
    wrap = Conversion(a, b, lambda payload: payload, terminal=True)
    leave = Conversion(b, c, lambda payload: payload)

    assert set(cheapest_paths({a: [wrap], b: [leave]}, a)) == {b}


def test_a_plan_is_isolated_if_a_step_that_reads_files_of_clients_is() -> None:
    def step(*, isolated: bool) -> AnyConversion:
        return Conversion(PNG, PNG, lambda payload: payload, isolated=isolated)

    def tool(*, isolated: bool) -> Tool[bytes]:
        return Tool("tool", PNG, lambda payloads: payloads[0], (PNG,), PNG, range(1, 3), len, "Tool", "", isolated)

    def planned(*parts: bool) -> Plan:
        steps = [step(isolated=isolated) for isolated in parts[1:]]
        return Plan((PNG, PNG), PNG, (steps[0],), tool(isolated=parts[0]), ((steps[1],), (steps[2],)), steps[3])

    assert not planned(False, False, False, False, False).isolated
    assert not Plan((PNG,), PNG, (step(isolated=False),)).isolated
    assert Plan((PNG,), PNG, (replace(step(isolated=False), programs=("/usr/bin/gs",)),)).isolated
    for number in range(4):
        plan = planned(*(number == other for other in range(5)))
        assert plan.isolated
        assert Task.of(plan) == Task(("png", "png"), "png", tool="tool", isolated=True)
    assert not planned(False, False, False, False, True).isolated  # only the result is read so
