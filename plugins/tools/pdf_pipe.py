"""Runs several tools one after the other, in one process."""

from collections.abc import Sequence
from typing import Annotated

from engine import RASTER, EncodedFile, InputNames, OptionValues, RunStage, StageList, ToolResult, tool
from engine.option_types import Password, Sanitize
from plugins.formats.pdf import PDF

TEMPLATE = "documents"

Stages = Annotated[
    Sequence[RunStage],
    StageList(
        "The tools in their order, a JSON list of objects: the id of the `tool` and its options. An option that takes "
        "a file names a part of the form.",
        example=[{"tool": "pdf-merge"}, {"tool": "pdf-rotate", "angle": 90}],
    ),
]


@tool(
    "pdf-pipe",
    PDF,
    title="Run several PDF tools",
    words="chain workflow batch steps",
    sources=(PDF,),
    decoded_to=RASTER,
    inputs=range(1, 21),
    isolated=True,
    archive=True,
    encodes=True,
)
def pipe(
    documents: list[bytes],
    *,
    stages: Stages,
    password: Password | None = None,
    sanitize: Sanitize = False,
    names: InputNames = (),
) -> ToolResult[bytes]:
    """Runs several tools one after the other, each on the result of the one before, as one conversion."""
    files = [EncodedFile(data, name=name) for data, name in zip(documents, names, strict=True)]
    opening: OptionValues = {} if password is None else {"password": password}
    for stage in stages:
        files = stage(files, {**opening, "sanitize": sanitize})
        opening = {}  # Files know the secrets that open them.
    if files[0].name is None:
        return ToolResult(files[0])
    return ToolResult(files=((file.name or "", file) for file in files))
