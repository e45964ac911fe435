"""Encoders of images to compare with: programs that are installed, and ones that are installed for it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from benchmarks.libraries import NODE, Environment
from benchmarks.measure import run_program

_OXIPNG = Environment("oxipng", ("pyoxipng==9.1.1",))
_OXIPNG_PROGRAM = "import sys, oxipng; oxipng.optimize(*sys.argv[1:], level=2)"
_SHARP_PROGRAM = """
import sharp from "sharp";
const [source, target, mozjpeg] = process.argv.slice(2);
sharp.concurrency(1);
const image = sharp(source);
await (mozjpeg ? image.jpeg({ mozjpeg: true }) : image).toFile(target);
"""


@dataclass(frozen=True)
class Encoder:
    """A program that writes files of a format at its default quality.

    `command` is one of a shell, with the places {source}, which is a PNG file, and {target}.
    """

    name: str
    format: str
    command: str

    def encode(self, source: Path) -> tuple[Path, float]:
        """Returns the file, beside the PNG, and the CPU time in seconds, with the start of the program.

        Raises CalledProcessError.
        """
        target = source.with_name(f"{source.stem}.{self.name}.{self.format}")
        command = [part.format(source=source, target=target) for part in shlex.split(self.command)]
        return target, run_program(command, source.parent)[1]


def of_photos(cache: Path) -> Iterator[Encoder]:
    """Encoders of lossy formats. Those of sharp are installed below `cache`. Raises OSError and SubprocessError."""
    program = NODE.install(cache) / "quality.mjs"
    program.write_text(_SHARP_PROGRAM)
    sharp = f"node {shlex.quote(str(program))} {{source}} {{target}}"
    for name in ("jpeg", "webp", "avif"):
        yield Encoder("sharp", name, sharp)
    yield Encoder("mozjpeg", "jpeg", f"{sharp} mozjpeg")
    if which("cwebp"):
        yield Encoder("cwebp", "webp", "cwebp -quiet {source} -o {target}")
    if which("avifenc"):
        yield Encoder("avifenc", "avif", "avifenc --jobs 1 {source} {target}")


def of_screens(cache: Path) -> Iterator[Encoder]:
    """Encoders of PNG: oxipng, which is installed below `cache`, and pngquant. Raises OSError and SubprocessError."""
    python = _OXIPNG.install(cache) / "bin" / "python"
    yield Encoder("oxipng -o2", "png", f"{shlex.quote(str(python))} -c '{_OXIPNG_PROGRAM}' {{source}} {{target}}")
    if which("pngquant"):
        yield Encoder("pngquant", "png", "pngquant --output {target} {source}")
