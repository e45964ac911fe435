"""A plugin whose files name the deed that their decoder performs."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from warnings import warn

from PIL import Image

from engine import (
    RASTER,
    AnyConversion,
    AnyTool,
    FidelityWarning,
    FileFormat,
    Frame,
    Raster,
    Signature,
    conversion,
    hookimpl,
    tool,
)
from plugins.formats import eps
from tests.support.executors.misbehaving import attacks, leftovers

TROUBLE = FileFormat("trouble", media_type="x/trouble", extensions=("trouble",), sniff=Signature((0, b"TROUBLE ")))
LAUNCHER = FileFormat("launcher", media_type="x/launcher", extensions=("launcher",), sniff=Signature((0, b"LAUNCH ")))


@conversion(TROUBLE, RASTER)
def decode(data: bytes) -> Raster:
    _, deed, argument = (part.strip() for part in f"{data.decode()} ".split(" ", 2))
    if attacks.is_attack(deed):
        return Raster([Frame(Image.new("RGB", (8, 8), attacks.outcome(deed, argument)))])
    if leftovers.is_leftover(deed):
        leftovers.leave(deed)
    elif deed == "crash":
        signal.raise_signal(signal.SIGSEGV)
    elif deed == "abort":
        os.abort()
    elif deed == "panic":
        raise Panic("capacity overflow")
    elif deed == "exit":
        os._exit(0)
    elif deed == "hang":
        time.sleep(float(argument or 600))
    elif deed == "spin":
        while True:
            pass
    elif deed in ("compute", "compute_in_child"):
        _compute(float(argument), in_child=deed == "compute_in_child")
    elif deed == "warn":
        warn(FidelityWarning("long", "x" * int(argument)), stacklevel=1)
    elif deed == "overwork":
        signal.raise_signal(signal.SIGXCPU)
    elif deed == "claim":
        side, size = map(int, argument.split())
        return Raster(_hungry(size), sizes=[(side, side)])
    elif deed == "raise":
        raise RuntimeError("a bug")
    elif deed == "lie":
        return "no raster"  # type: ignore[return-value]
    elif deed == "late":
        return Raster(_failing())
    elif deed == "bloat":
        return Raster([Frame(Image.effect_noise((3000, 3000), 80))])
    elif deed in ("eat", "tidy_up", "child"):
        {"eat": _eat, "tidy_up": _tidy_up, "child": _leave_child}[deed]()
    return Raster([Frame(Image.new("RGB", (8, 8), "red"))])


def _compute(seconds: float, *, in_child: bool) -> None:
    """Uses as many seconds of CPU time."""
    child = os.fork() if in_child else 0
    if child:
        os.waitpid(child, 0)
        return
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    if in_child:
        os._exit(0)


def _leave_child() -> None:
    """Forks a process, which keeps a file of this name open."""
    if os.fork() == 0:
        with Path("left-child").open("w"):
            time.sleep(600)
    time.sleep(600)


# The same step in a process that is allowed to run Ghostscript.
launch = conversion(LAUNCHER, RASTER, programs=eps.PROGRAMS)(decode.run)


@tool("trouble-row", RASTER, title="Row", sources=(TROUBLE,), count=lambda raster: raster.count, inputs=range(2, 4))
def row(rasters: list[Raster]) -> Raster:
    """The images side by side."""
    image = Image.new("RGB", (8 * len(rasters), 8))
    for number, raster in enumerate(rasters):
        image.paste(next(iter(raster.frames)).image, (8 * number, 0))
    return Raster([Frame(image)])


class Panic(BaseException):
    """As libraries in Rust raise it."""


def _eat() -> None:
    hoard = bytearray()
    while True:
        hoard += bytes(64 << 20)


def _tidy_up() -> None:
    """Uses temporary files and folders as plugins are allowed to."""
    with tempfile.TemporaryFile() as file, tempfile.NamedTemporaryFile() as named:
        file.write(b"nameless")
        named.write(b"named")
    with tempfile.TemporaryDirectory() as folder:
        inner = Path(folder, "inner")
        inner.mkdir()
        (inner / "none").touch(exist_ok=True)
        (inner / "one").write_bytes(b"one")
        (inner / "one").chmod(0o400)
        shutil.copy2(inner / "one", inner / "two")
        shutil.move(inner / "two", inner / "three")
        if {path.name: path.read_bytes() for path in inner.iterdir() if path.name != "two"} != _TIDY:
            raise OSError("files were not made, copied and moved")


_TIDY = {"none": b"", "one": b"one", "three": b"one"}


def _failing() -> Iterator[Frame]:
    if TROUBLE.lossy is False:
        raise OSError("the frame is broken")
    yield Frame(Image.new("RGB", (8, 8)))


def _hungry(size: int) -> Iterator[Frame]:
    """Decodes an image with a peak of `size` bytes of memory."""
    memory = bytes(size)
    yield Frame(Image.new("RGB", (8, 8), "red"))
    del memory


@hookimpl
def conversions() -> list[AnyConversion]:
    return [decode, launch]


@hookimpl
def tools() -> list[AnyTool]:
    return [row]
