"""Runs Ghostscript on files in the folder of the job."""

import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

from engine import CorruptInput, Requirement

PROGRAM = shutil.which("gs")
PROGRAMS = (str(Path(PROGRAM).resolve()),) if PROGRAM else ()
REQUIREMENT = Requirement(
    "Ghostscript",
    "reading EPS, and writing EPS with vectors from PDF",
    "apt-get install ghostscript",
    present=PROGRAM is not None,
)


def run(data: bytes, device: str, *arguments: str) -> bytes:
    """Renders `data` (PostScript or PDF) with `device`. Raises CorruptInput."""
    # -dSAFER permits access to TMPDIR, so TMPDIR is a separate folder.
    with TemporaryDirectory() as folder:
        source, result = Path(folder, "in"), Path(folder, "out")
        source.write_bytes(data)
        command = [
            *PROGRAMS,
            *("-q", "-dSAFER", "-dBATCH", "-dNOPAUSE"),
            f"-sDEVICE={device}",
            f"-sOutputFile={result}",
            *arguments,
            str(source),
        ]
        process = subprocess.run(
            command,
            env={"TMPDIR": folder},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        # Ghostscript exits with 0 for empty and truncated files too.
        if process.returncode or not result.exists() or not result.stat().st_size:
            raise CorruptInput("The PostScript program cannot be rendered.")
        return result.read_bytes()
