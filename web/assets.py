"""What pages are made of besides themselves: style, scripts and pictures, in memory from the start."""

from __future__ import annotations

import hashlib
import mimetypes
from pathlib import Path

from tornado.template import Loader

PREFIX = "/static"


class Assets:
    """The files of a folder. Their addresses change with what is in any of them, so that browsers may keep them."""

    def __init__(self, folder: Path) -> None:
        """Reads from disk."""
        self._files = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(f"{name} {len(content)} ".encode() + content)
        self.version = digest.hexdigest()[:16]

    def url(self, name: str) -> str:
        """The address of a file. Raises KeyError where there is none."""
        self._files[name]
        return f"{PREFIX}/{self.version}/{name}"

    def find(self, name: str) -> tuple[bytes, str] | None:
        """The file of that name and its media type, if there is one."""
        content = self._files.get(name)
        return None if content is None else (content, _media_type(name))


def _media_type(name: str) -> str:
    # The tables of the system differ.
    known = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    found = known.get(Path(name).suffix) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return f"{found}; charset=utf-8" if found.startswith("text/") else found


def load_pages() -> Loader:
    """The templates of all pages, ready for use. Reads from disk."""
    folder = Path(__file__).parent / "pages"
    loader = Loader(str(folder))
    for path in folder.glob("*.html"):
        loader.load(path.name)
    return loader
