"""Software to compare with, which is installed into folders of its own."""

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

_INSTALLED = "installed"  # lists the packages; exists when the environment is complete
_TIMEOUT = 600  # seconds


@dataclass(frozen=True)
class Environment:
    """Packages in a folder of their own: of npm, or in a virtual environment of Python."""

    name: str
    packages: tuple[str, ...]
    uses_npm: bool = False

    def install(self, cache: Path) -> Path:
        """Returns the folder below `cache`. Does nothing if it is complete. Raises OSError and SubprocessError."""
        folder, wanted = cache / self.name, "\n".join(self.packages)
        marker = folder / _INSTALLED
        if not marker.is_file() or marker.read_text() != wanted:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if self.uses_npm:
                _run("npm", "install", "--no-audit", "--no-fund", "--prefix", folder, *self.packages)
            else:
                _run(sys.executable, "-m", "venv", folder)
                _run(folder / "bin" / "pip", "install", *self.packages)
            marker.write_text(wanted)
        return folder

    def version(self, folder: Path, package: str) -> str:
        """Returns the name and version of an installed package; for npm, `package` is a path below node_modules."""
        if self.uses_npm:
            manifest = json.loads((folder / "node_modules" / package / "package.json").read_text())
            return f"{manifest['name']} {manifest['version']}"
        (library,) = (folder / "lib").glob("python*/site-packages")
        found = next(found for found in distributions(path=[str(library)]) if found.name.lower() == package)
        return f"{package} {found.version}"


NODE = Environment("node", ("fastify@5.12.8", "@fastify/multipart@10.1.9", "sharp@0.35.5", "ipx@3.1.1"), uses_npm=True)
THUMBOR = Environment("thumbor", ("thumbor==7.8.0", "pillow==12.3.0"))
PYVIPS = Environment(
    "starlette",
    ("starlette==1.10.0", "uvicorn[standard]==0.54.0", "python-multipart==0.0.34", "pyvips[binary]==3.2.0"),
)


def reason(error: Exception) -> str:
    """Returns the first error that an installation printed, or else the last line of the message."""
    lines = error.stderr.splitlines() if isinstance(error, subprocess.CalledProcessError) else []
    errors = (line for line in lines if line.lower().startswith(("error", "npm error")))
    return next(errors, str(error).strip().rpartition("\n")[2])


def _run(*command: str | Path) -> None:
    """Runs a command. Raises OSError, CalledProcessError and TimeoutExpired."""
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_TIMEOUT)
