"""Verifies a result before the client is charged: its own format's reader opens it and reads the headers."""

import warnings
from typing import Any

from PIL import Image

from engine.conversions import AnyConversion, Conversion, EncodedFile, FidelityWarning
from engine.decode_limits import Size
from engine.errors import StepFailed, TooLarge
from engine.media import DOCUMENT, Images, Raster, images
from engine.options import NO_OPTIONS, OptionValues
from engine.planner import Plan
from engine.registry import Registry

# They depend on the machine, and on a password for the input that the result does not need.
_HARMLESS_WARNINGS = frozenset({"font_substituted", "glyphs_missing", "option_ignored"})


def verify(registry: Registry, plan: Plan, result: EncodedFile, options: OptionValues = NO_OPTIONS) -> Images:
    """Returns what the reader of the result's format finds in it: one page without size if there is no reader.

    Raises StepFailed if the result is truncated, if its format's reader cannot open it or warns of damage, or if the
    number or size of its images differs from the encoder's input. Files that a step restores may be truncated, and have
    warnings. Raises TooLarge if it exceeds a limit of the reader, such as a page that is too large to be drawn.
    """
    if result.archived:
        return Images(1)
    target = result.format or plan.target
    reader = plan.reader if target == plan.target else registry.reader(target)
    restored = any(step.restores for step in plan.conversions)
    if target.is_complete and not (restored or target.is_complete(result.data)):
        raise StepFailed(f"The result is an incomplete {target} file.")
    has_signature = registry.reads(target) and not target.text_extensions  # a text can begin as any file does
    if has_signature and not target.sniff(result.data):
        raise StepFailed(f"The result is not a {target} file.")
    if reader is None:
        written = _encoded_images(result.encoder_input, paged=target.paged)
        return Images(written.count if written and target.paged else 1)
    # Other options select a part of the input, or change it.
    given = options if result.secrets is None else result.secrets
    secrets = {name: given[name] for name, option in reader.options.items() if name in given and option.secret}
    payload = _read(reader, result.data, secrets, decode=target.is_complete is None, warns=restored)
    encoded = result.encoder_input
    actual = images(payload)
    expected = _encoded_images(encoded, paged=target.paged) if result.pages is None else Images(result.pages)
    if actual is None or expected is None:
        return actual or Images(1)
    # Encoders of animations drop a frame that equals the one before it.
    merges_frames = isinstance(encoded, Raster) and encoded.animated
    same_count = 1 <= actual.count <= expected.count if merges_frames else actual.count == expected.count
    same_size = not (actual.size and expected.size) or actual.size == expected.size
    if not same_count or not (same_size or actual.size == _stored_size(plan, expected.size, options)):
        raise StepFailed(f"The content of the {target} file differs from the encoder's input.")
    return actual


def _stored_size(plan: Plan, size: Size | None, options: OptionValues) -> Size | None:
    """The size at which the encoder stores an image of this size."""
    encoder = plan.steps[plan.encoder_position]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the pipeline has issued them
        capabilities = encoder.capabilities_for(options) if isinstance(encoder, Conversion) else None
    return capabilities.stored_size(size) if capabilities and size else size


def _read(reader: AnyConversion, data: bytes, secrets: OptionValues, *, decode: bool, warns: bool) -> Any:
    """The payload that the reader opens, which may warn of losses if `warns`.

    `decode`: decodes all images, which shows whether the file is complete.
    """
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            payload = reader(data, secrets)
            if decode and isinstance(payload, Raster):
                for frame in payload.frames:
                    if isinstance(frame.pixels, Image.Image):
                        frame.pixels.load()
    except TooLarge:
        raise
    except Exception as error:
        raise StepFailed(f"The result is an unreadable {reader.source} file.") from error
    codes = {one.message.code for one in caught if isinstance(one.message, FidelityWarning)}
    if codes - _HARMLESS_WARNINGS and not warns:
        raise StepFailed(f"The result is a damaged {reader.source} file.")
    return payload


def _encoded_images(payload: Any, *, paged: bool) -> Images | None:
    """The images that an encoder received; None for bytes."""
    if isinstance(payload, Raster):
        sizes = payload.decoded_sizes or payload.sizes  # encoders that take the data of the origin decode nothing
        return Images(len(sizes), sizes[0]) if sizes else None
    return Images(payload.page_count if paged else 1) if DOCUMENT.holds(payload) else None
