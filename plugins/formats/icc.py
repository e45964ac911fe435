"""ICC profiles, which options of conversions take as files."""

from engine import FileFormat, Signature, conversion
from plugins._color import profiles
from plugins._color.profiles import PROFILE, Profile

MODULES = profiles.MODULES
_SIZE = 4  # bytes of the size at the start

ICC = FileFormat(
    "icc",
    media_type="application/vnd.iccprofile",
    extensions=("icc", "icm"),
    sniff=Signature((36, b"acsp")),
    is_complete=lambda content: int.from_bytes(content[:_SIZE], "big") <= len(content),
)


@conversion(ICC, PROFILE, memory=1)
def decode(data: bytes) -> Profile:
    return profiles.read(data)
