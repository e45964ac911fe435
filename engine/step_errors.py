"""Errors of steps: translates exceptions of libraries to errors of the file or of the step."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from engine.conversions import AnyConversion, AnyTool, AnyTransform, Conversion
from engine.errors import ConversionError, CorruptInput, OutOfMemory, StepFailed, TooLarge
from engine.formats import FileFormat
from engine.frames import Frame
from engine.library_errors import lacks_memory, max_nesting
from engine.media import Raster


@contextmanager
def step_errors(step: AnyConversion | AnyTransform | AnyTool) -> Iterator[None]:
    """Raises errors of a step as ConversionError."""
    try:
        yield
    except ConversionError:
        raise
    except ImportError as error:
        message = f"The step {step} needs a library that cannot be loaded on this machine."
        raise StepFailed(message, details={"step": str(step)}) from error
    except Exception as error:
        if lacks_memory(error):
            raise OutOfMemory("The conversion exceeded its memory limit.") from error
        if (nesting := max_nesting(error)) is not None:
            details = {"max_nesting": nesting, "step": str(step)}
            raise TooLarge("The file is nested too deeply.", reason="elements", details=details) from error
        # A decoder fails because of the file; later steps get data that a decoder has accepted.
        received = step.source if isinstance(step, Conversion) else step.format
        if isinstance(received, FileFormat):
            message = f"The file is recognized as {received} but cannot be decoded."
            raise CorruptInput(message, details={"step": str(step)}) from error
        if received.lazy:
            raise CorruptInput("The document is damaged.", details={"step": str(step)}) from error
        raise StepFailed(f"The step {step} failed.", details={"step": str(step)}) from error


@contextmanager
def file_errors(name: str) -> Iterator[None]:
    """Raises errors about the file of an option, or of a parameter of a tool, with this name."""
    try:
        yield
    except CorruptInput as error:
        raise CorruptInput(f"The file of {name} is damaged.", param=name, details=error.details) from error
    except ConversionError as error:
        error.param = error.param or name
        raise


def of_file(payload: Any, name: str) -> Any:
    """The payload of an additional file: errors of frames, which are decoded later, have its name, too."""
    if not isinstance(payload, Raster):
        return payload

    def frames(decoded: Iterable[Frame]) -> Iterator[Frame]:
        with file_errors(name):
            try:
                yield from decoded
            except ConversionError:
                raise
            except Exception as error:
                if lacks_memory(error):
                    raise
                raise CorruptInput("The pixels cannot be decoded.") from error

    deep = payload.deep_frames
    return replace(payload, frames=frames(payload.frames), deep_frames=None if deep is None else frames(deep))
