"""The `lazy` flags of steps are correct for ordinary files: jobs end in the process in which they start."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from engine.registry import Registry, load_registry
from tests.support.samples import sample

# Runs every plan in a process without lazy modules, and prints those that use one.
_PROGRAM = """
import json
import sys
from pathlib import Path
from engine import Options, pipeline, sandbox, verification
from engine.executor import preload
from engine.lazy_import import NotLoaded, seal
from engine.registry import load_registry

registry = load_registry()
plans = {f"{plan.source}-{plan.target}": plan for plan in registry.catalogue()}
for name, tool in registry.tools.items():
    sources = [tool.sources[0]] * tool.inputs[0]
    plans[name] = registry.plan(sources, tool.sources[0], name)
preload.preload(full=False)
sandbox.allowed_path_rules(registry.programs)
seal()

lazy_uses = {}
for name, plan in plans.items():
    try:
        inputs = [Path(sys.argv[1], source.name).read_bytes() for source in plan.sources]
        verification.verify(registry, plan, pipeline.run(plan, inputs, Options(quality=80)), Options())
    except NotLoaded as error:
        lazy_uses[name] = str(error)
print(json.dumps([sorted(plans), lazy_uses]))
"""


@pytest.fixture(scope="module")
def lazy_uses(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[str], dict[str, str]]:
    """All pairs and tools, and the lazy modules that each uses."""
    folder = tmp_path_factory.mktemp("samples")
    for plan in load_registry().catalogue():
        (folder / plan.source.name).write_bytes(sample(plan.source.name))
    done = subprocess.run([sys.executable, "-c", _PROGRAM, folder], stdout=subprocess.PIPE, text=True, check=True)
    names, found = json.loads(done.stdout)
    return set(names), found


def _lazy(registry: Registry) -> set[str]:
    pairs = {f"{plan.source}-{plan.target}" for plan in registry.catalogue() if plan.lazy}
    return pairs | {name for name, tool in registry.tools.items() if tool.lazy}


def test_light_jobs_use_no_lazy_module(lazy_uses: tuple[set[str], dict[str, str]]) -> None:
    names, found = lazy_uses

    assert len(names) > 100
    assert {name: module for name, module in found.items() if name not in _lazy(load_registry())} == {}


def test_all_lazy_pairs_use_a_lazy_module(lazy_uses: tuple[set[str], dict[str, str]]) -> None:
    _, found = lazy_uses

    assert _lazy(load_registry()) - set(found) == set()


def test_most_conversions_between_pictures_are_light() -> None:
    usual = {"jpeg", "png", "webp", "avif", "heic", "gif", "bmp"}
    light = {(plan.source.name, plan.target.name) for plan in load_registry().catalogue() if not plan.lazy}

    assert {(source, target) for source in usual | {"tiff", "psd"} for target in usual | {"eps"}} == light
