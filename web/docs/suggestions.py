"""What people look for: the target that fits a kind of file, groups of targets, and everyday names of formats."""

from collections.abc import Mapping
from types import MappingProxyType

from engine.formats import FileFormat
from engine.registry import Registry

_PHOTO, _DRAWING, _CLIP, _DOCUMENT = "jpeg", "png", "gif", "pdf"
_OTHERS = MappingProxyType({"jpeg": "webp", "png": "webp", "gif": "mp4", "pdf": "docx"})
"""Where a file has the suggested format already."""

FORMAT_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "csv": "excel spreadsheet table",
        "docx": "word document microsoft office",
        "doc": "word document",
        "epub": "ebook book kindle",
        "gif": "animation",
        "heic": "iphone apple photo",
        "html": "web page website",
        "ico": "favicon icon",
        "jpeg": "jpg photo image",
        "json": "data",
        "md": "markdown",
        "mov": "video clip iphone",
        "mp4": "video clip film",
        "odp": "libreoffice openoffice slides",
        "ods": "libreoffice openoffice spreadsheet",
        "odt": "libreoffice openoffice document",
        "pdf": "acrobat document",
        "png": "image screenshot",
        "pptx": "powerpoint slides presentation",
        "ppt": "powerpoint slides",
        "psd": "photoshop",
        "svg": "vector drawing",
        "txt": "text plain",
        "webm": "video clip",
        "webp": "image web",
        "xlsx": "excel spreadsheet",
        "xls": "excel spreadsheet",
    }
)
"""Words that find a format, in addition to its name and extensions; of formats with the same words, the newer first."""


def suggested_targets(registry: Registry) -> dict[str, str]:
    """The output format for each input format: JPEG for photos, PNG for drawings, PDF for documents, GIF for clips."""
    found = {}
    for source in registry.formats.values():
        names = [target.name for target in registry.targets(source)]
        suggested = _suggested(registry, source) if names else ""
        if suggested == source.name:
            suggested = _OTHERS[suggested]
        if names:
            found[source.name] = suggested if suggested in names else names[0]
    return found


def _suggested(registry: Registry, source: FileFormat) -> str:
    kind = source.media_type.partition("/")[0]
    if kind != "image":
        return _CLIP if kind == "video" else _DOCUMENT
    decoded = registry.plan([source], _DRAWING).losses if is_target(registry, source, _DRAWING) else ()
    return _PHOTO if source.lossy or "detail" in decoded else _DRAWING


def is_target(registry: Registry, source: FileFormat, name: str) -> bool:
    """Whether files of the format convert to the one with this name."""
    return any(target.name == name for target in registry.targets(source))


def target_groups(registry: Registry) -> dict[str, list[str]]:
    """The names of all output formats by the kind of file that they are for."""
    groups: dict[str, list[str]] = {"Images": [], "Documents": [], "Text and data": [], "Clips": []}
    titles = {"image": "Images", "video": "Clips", "text": "Text and data"}
    for name in sorted({target.name for _, target in registry.pairs()}):
        media_type = registry.formats[name].media_type
        title = titles.get(media_type.partition("/")[0], "Documents")
        groups["Text and data" if media_type == "application/json" else title].append(name)
    return {title: names for title, names in groups.items() if names}
