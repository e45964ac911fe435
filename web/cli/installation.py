"""Whether this process runs the files that were installed: packages of others can have the names of convertd's."""

from importlib.util import find_spec
from pathlib import Path

_PACKAGES = ("config", "engine", "plugins", "storage")
_ADVICE = "install convertd in an environment of its own, as by 'uv tool install' or pipx"


def find_hidden() -> str | None:
    """Describes the first package in whose place one of a folder of PYTHONPATH would be imported. Takes 1 ms."""
    for name in _PACKAGES:
        own = Path(__file__).parents[2] / name / "__init__.py"
        spec = find_spec(name)
        found = None if spec is None else spec.origin or f"a folder {name} without __init__.py"
        if found != str(own):
            return f"{found or 'nothing'} is imported in place of {own}: unset PYTHONPATH, or {_ADVICE}"
    return None


def find_damaged() -> str | None:
    """Describes the first installed file that is missing or has another size: those of other packages overwrite it.

    Takes 0.1 s. An editable installation has no such files.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415, which few commands need

    try:
        installed = distribution("convertd")
    except PackageNotFoundError:
        return None
    folder = str(installed.locate_file(""))
    for line in (installed.read_text("RECORD") or "").splitlines():
        name, _, size = line.rsplit(",", 2)
        path = Path(folder, name)
        if size and not (path.is_file() and path.stat().st_size == int(size)):
            return f"{path} is not the file that was installed: another package has replaced or removed it; {_ADVICE}"
    return None
