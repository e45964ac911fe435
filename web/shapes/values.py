"""Values that stand in several answers."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import Field

from config.tariff import TierName

Timestamp: TypeAlias = Annotated[
    str, Field(pattern=r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$", description="UTC.", examples=["2026-11-21 05:23:00"])
]
FileId: TypeAlias = Annotated[
    str,
    Field(pattern="^file_[0-9A-Za-z]{22}$", description="Names the file.", examples=["file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
BatchId: TypeAlias = Annotated[
    str,
    Field(pattern="^batch_[0-9A-Za-z]{22}$", description="Names the batch.", examples=["batch_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"]),
]
KeyId: TypeAlias = Annotated[
    str, Field(pattern="^key_[0-9A-Za-z]{22}$", description="Names the key.", examples=["key_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])
]
RequestId: TypeAlias = Annotated[
    str,
    Field(
        pattern="^req_[0-9A-Za-z]{22}$",
        description="Names this request in the server's log.",
        examples=["req_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"],
    ),
]
InputFormat: TypeAlias = Annotated[
    str, Field(description="The format that the file's content was found to have.", examples=["jpeg"])
]
OutputFormat: TypeAlias = Annotated[str, Field(description="The canonical name of the target.", examples=["webp"])]
Size: TypeAlias = Annotated[int, Field(ge=0, description="Bytes.", examples=[48213])]
OriginalSize: TypeAlias = Annotated[int, Field(ge=0, description="Bytes of what was sent.", examples=[48213])]
ProcessedSize: TypeAlias = Annotated[int, Field(ge=0, description="Bytes of the result.", examples=[20104])]
Reduction: TypeAlias = Annotated[
    float, Field(description="How much smaller the result is; negative where it is larger.", examples=[58.3])
]
DownloadUrl: TypeAlias = Annotated[
    str,
    Field(
        description="Where the result is fetched, with the key.",
        examples=["/api/v1/files/file_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7/download"],
    ),
]
Milliseconds: TypeAlias = Annotated[int, Field(ge=0, description="How long the conversion ran.", examples=[312])]
Count: TypeAlias = Annotated[int, Field(ge=0, examples=[3])]
Credits: TypeAlias = Annotated[int, Field(ge=0, examples=[49])]
Tier: TypeAlias = Annotated[
    TierName, Field(description="`paid` once credits have been bought, for good.", examples=["free"])
]
OriginalName: TypeAlias = Annotated[
    str, Field(description="The client's name for the file, without any folder.", examples=["photo.jpg"])
]
Extension: TypeAlias = Annotated[
    str,
    Field(description="The client's where it fits the content, else the format's usual one.", examples=["jpg"]),
]
Message: TypeAlias = Annotated[str, Field(description="A sentence for people.")]
