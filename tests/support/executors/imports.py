"""A program that prints the modules that jobs import after those that the engine imports for them.

Arguments: "all" for what a fork server imports, "plan" for what a worker process without one imports; a folder of
files; a number of shares of the jobs, and which of them runs. Jobs that need the same modules are in the same share.
They run in forks of a process that has imported only these modules and the plugins' declarations.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeAlias

from engine import pipeline, verification
from engine.executor import preload
from engine.media import RASTER
from engine.options import OptionValue, validate_options
from engine.planner import Plan, template_parts
from engine.registry import Registry, load_registry

Imports: TypeAlias = dict[str, list[str]]
"""The modules that jobs import, or the errors that they end with, by job."""

Jobs: TypeAlias = list[tuple[Path, Plan]]
"""The file and the plan of each job."""

_TARGETS = ("bmp", "png")  # BMP has 8 bits per sample, PNG can have more
_BOOKS = ("fb2", "mobi", "xps")  # one function opens them and epub
_TOOL_OPTIONS: dict[str, dict[str, OptionValue]] = {
    "pdf-arrange": {"pages": [{"file": 0}]},
    "pdf-crop": {"margin": 1},
    "pdf-delete-pages": {"pages": "1"},
    "pdf-extract-pages": {"pages": "1"},
    "pdf-metadata": {"title": "a"},
    "pdf-protect": {"owner_password": "a"},
    "pdf-resize-pages": {"page_size": "a4"},
    "pdf-redact": {"text": ["a"]},
    "pdf-rotate": {"angle": 90},
    "pdf-split": {"every": 1},
    "pdf-watermark": {"text": "a"},
}
# For a file without images, attachments and fields, and without a file to attach or to overlay, or a certificate.
_WITHOUT_RESULT = {
    "pdf-attach",
    "pdf-extract-attachments",
    "pdf-extract-images",
    "pdf-form",
    "pdf-overlay",
    "pdf-sign",
}


def main(kind: str, folder: Path, every: int, first: int) -> None:
    registry = load_registry()
    by_modules: dict[frozenset[str], Jobs] = {}
    by_template: dict[str, Jobs] = {}
    for path in sorted(folder.iterdir()):
        for plan in _plans(registry, path.stem):
            by_modules.setdefault(plan.modules, []).append((path, plan))
    chosen = dict([*by_modules.items()][first::every])
    for path, plan in chain.from_iterable(chosen.values()):
        by_template.setdefault(plan.template, []).append((path, plan))
    print(json.dumps(_with_modules(registry, chosen) if kind == "plan" else _with_templates(registry, by_template)))


def _with_templates(registry: Registry, groups: dict[str, Jobs]) -> Imports:
    preload.preload()
    found: Imports = {}
    for template, jobs in groups.items():
        found |= _in_fork(template, partial(_with_template, template, registry, jobs))
    return found


def _with_template(template: str, registry: Registry, jobs: Jobs) -> Imports:
    for part in template_parts(template)[1:]:
        preload.preload_template(part)
    return _run_group(registry, jobs)


def _with_modules(registry: Registry, groups: dict[frozenset[str], Jobs]) -> Imports:
    """Runs jobs by the modules that are imported for them. Those that share modules run in forks of one process."""
    common = frozenset.intersection(*groups)
    preload.import_modules(common)
    groups = {modules - common: jobs for modules, jobs in groups.items()}
    found = _run_group(registry, groups.pop(frozenset(), []))
    while groups:
        ((module, _),) = Counter(chain.from_iterable(groups)).most_common(1)
        needing = {modules: groups.pop(modules) for modules in [*groups] if module in modules}
        found |= _in_fork(module, partial(_with_modules, registry, needing))
    return found


def _plans(registry: Registry, name: str) -> Iterator[Plan]:
    source = registry.formats[name.partition("-")[0]]
    for fmt in registry.targets(source):
        plan = registry.plan([source], fmt)
        as_document = source.name not in _BOOKS and all(step.source is not RASTER for step in plan.conversions)
        if source.name == "bmp" or fmt.name in _TARGETS or as_document:
            yield plan
    for tool in registry.tools.values():
        if source in tool.sources and tool.name not in _WITHOUT_RESULT:
            yield registry.plan([source] * tool.inputs[0], tool.target, tool.name)


def _run_group(registry: Registry, group: Jobs) -> Imports:
    found: Imports = {}
    while len(found) < len(group):
        rest = group[len(found) :]
        found |= _in_fork(_name(*rest[0]), partial(_run_jobs, registry, rest))
    return found


def _run_jobs(registry: Registry, group: Jobs) -> Imports:
    """Runs jobs up to the first that imports a module, which the others would then find imported."""
    found: Imports = {}
    for path, plan in group:
        found |= _run_job(registry, _name(path, plan), plan, path.read_bytes())
        if any(found.values()):
            break
    return found


def _name(path: Path, plan: Plan) -> str:
    return f"{path.name}: {plan}"


def _run_job(registry: Registry, name: str, plan: Plan, data: bytes) -> Imports:
    if plan.tool is None:
        options = registry.validate({"pages": "1"} if "pages" in plan.options else {})
    else:
        options = validate_options(registry.tool_options(plan.tool.name), _TOOL_OPTIONS.get(plan.tool.name, {}))
    before = {*sys.modules}
    try:
        verify = partial(verification.verify, registry, plan, options=options)
        pipeline.run(plan, [data] * len(plan.sources), options, on_file=verify)
    except Exception as error:
        return {name: [repr(error)]}
    return {name: sorted({*sys.modules} - before)}


def _in_fork(name: str, function: Callable[[], Imports]) -> Imports:
    """Calls the function in a fork of this process, which may crash. Returns its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writer, json.dumps(function()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        found: Imports = json.loads(pipe.read() or json.dumps({name: ["crashed"]}))
    os.waitpid(child, 0)
    return found


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
