"""A program that prints the modules that jobs import after those that the engine imports for them.

Argument: "all" for what a fork server imports, "plan" for what a worker process without one imports. Each job runs in
a fork of a process that has only loaded the plugins' declarations, or the fork server's modules.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from engine import pipeline, verification
from engine.executor import preload
from engine.media import RASTER
from engine.planner import Plan
from engine.registry import Registry, load_registry

_TARGETS = ("bmp", "png")  # with 8 bits per sample and with more


def main(kind: str, folder: Path) -> None:
    registry = load_registry()
    if kind == "all":
        preload.preload()
    found = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        for plan in _plans(registry, path.stem):
            modules = plan.modules if kind == "plan" else frozenset[str]()
            found[f"{path.name}: {plan}"] = _imports(registry, plan, data, modules)
    print(json.dumps(found))


def _plans(registry: Registry, name: str) -> Iterator[Plan]:
    source = registry.formats[name.partition("-")[0]]
    for fmt in registry.targets(source):
        plan = registry.plan([source], fmt)
        if source.name == "bmp" or fmt.name in _TARGETS or all(step.source is not RASTER for step in plan.conversions):
            yield plan
    for tool in registry.tools.values():
        if source in tool.sources:
            yield registry.plan([source] * tool.inputs[0], source, tool.name)


def _imports(registry: Registry, plan: Plan, data: bytes, modules: frozenset[str]) -> list[str]:
    """The modules that the job imports, or the error that it ends with."""
    reader, writer = os.pipe()
    child = os.fork()
    if child:
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            found: list[str] = json.loads(pipe.read() or '["crashed"]')
        os.waitpid(child, 0)
        return found
    try:
        preload.import_modules(modules)
        options = registry.validate({"pages": "1"} if "pages" in plan.options else {})
        before = {*sys.modules}
        try:
            verify = partial(verification.verify, registry, plan, options=options)
            pipeline.run(plan, [data] * len(plan.sources), options, on_file=verify)
        except Exception as error:
            found = [repr(error)]
        else:
            found = sorted({*sys.modules} - before)
        os.write(writer, json.dumps(found).encode())
    finally:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
