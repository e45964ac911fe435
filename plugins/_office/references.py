"""References of files of Office to what is outside of them: they are removed before LibreOffice opens the files.

Its settings keep it from following some of them only: it loads images of SVG and of fields in RTF, for example.
"""

from __future__ import annotations

import re
import zipfile
import zlib
from base64 import b64encode
from contextlib import suppress
from io import BytesIO
from posixpath import basename, dirname, join, normpath
from urllib.parse import unquote

from lxml import etree

from engine import CorruptInput
from plugins._office import compound_file
from plugins._svg import GZIP, decompress
from plugins._svg.source import decode_body
from plugins._text import zip_archives
from plugins._text.markup import warn_not_loaded

_MAX_SVG = 32 << 20  # bytes of a gzipped SVG
_HEAD = 64  # bytes, enough to see whether a file of a package can have references
_UTF_8_NAME = 0x800  # a flag of an entry
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf)?\s*<|\xff\xfe|\xfe\xff|\0<")
_HINTS = (b"href", b"src", b"instr", b"image-data", b"xml:base", b"TargetMode", b"DOCTYPE", b"TF-7", b"tf-7", b"\0")
_COMMANDS = "INCLUDEPICTURE|INCLUDETEXT|INCLUDE|IMPORT|LINK|DDEAUTO|DATABASE|DDE|RD"  # fields that load files
_COMMAND = re.compile(rf'[\s"]*(?:{_COMMANDS})(?!\w)\s*(?:"[^"]*"|\S*)', re.IGNORECASE)
_RTF_FIELD = re.compile(rb"\\fldinst(?![a-zA-Z])")
_RTF_FORMAT = re.compile(rb"\\(?!u-?\d|bin)[a-z]+-?\d* ?|(?<!\\)\\\*|[{}\r\n]", re.IGNORECASE)
_RTF_ESCAPED = re.compile(r'[\s"]*\w*\\(?!\\)\S*\s*\S*')  # a command with letters such as \'41 and \u65
# In files of Word, after the character 19, in 8 or 16 bits.
_BINARY_FIELD = re.compile(
    rb"(?<=\x13)[\s\"\0]*(?:%s)(?=[\s\"])" % re.sub(rb"(\w)", rb"\1\0?", b"INCLUDEPICTURE|INCLUDETEXT|LINK"),
    re.IGNORECASE,
)
_INSIDE = re.compile(r"^vnd\.sun\.star\.(?:Package|GraphicObject):", re.IGNORECASE)
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:|/", re.IGNORECASE)  # a scheme, a drive, or the root
_NOWHERE = "about:invalid"
_VML = "{urn:schemas-microsoft-com:vml}"
# Elements whose references are followed by a click.
_CLICKED = (
    "a", "form", "button", "event-listener",
    "hyperlink", "hlinkClick", "hlinkHover", "hlinkMouseOver",
)  # fmt: skip
_TEMPLATES = ("template", "attachedTemplate")  # the pages look the same without them
_RELATIONS = etree.XPath("//*[local-name()='Relationship' and translate(@TargetMode, 'EXTRNAL', 'extrnal')='external']")
_REFERENCES = etree.XPath(
    "//@*[local-name()='href' or local-name()='src' or local-name()='image-data' or local-name()='base' "
    "or local-name()='instr' or contains(namespace-uri(), '/relationships')]"
)
_FIELDS = etree.XPath("//*[local-name()='instrText']")


def remove(data: bytes) -> bytes:
    """The file without the references. Issues a warning that names them. Raises CorruptInput and TooLarge."""
    remover = _Remover()
    cleaned = remover.clean(data)
    warn_not_loaded([*remover.removed])
    return cleaned


class _Remover:
    """Removes the references of a file. `removed` are those of which something is missing on the pages."""

    def __init__(self) -> None:
        self.removed: dict[str, None] = {}
        self._changes = 0
        self._clicked: dict[str, dict[str, str]] = {}  # by the path of a part, its hyperlinks by their IDs

    def clean(self, data: bytes) -> bytes:
        """The same object if nothing is removed."""
        if data.startswith(zip_archives.SIGNATURE):
            return self._clean_package(data)
        if data.startswith(compound_file.SIGNATURE):
            return _BINARY_FIELD.sub(self._blanked, data)
        return self._clean_rtf(data) if data.startswith(rb"{\rtf") else data

    def _note(self, reference: str, element: str = "") -> None:
        self._changes += 1
        if element not in _TEMPLATES:
            self.removed[reference.strip()] = None

    def _clean_package(self, data: bytes) -> bytes:
        archive = zip_archives.open_checked(data, limit_markup=True)
        changed: dict[zipfile.ZipInfo, bytes] = {}
        # Relationships first: they define the IDs of other parts.
        for entry in sorted(archive.infolist(), key=lambda one: not one.filename.endswith(".rels")):
            with archive.open(entry) as file:
                head = file.read(_HEAD)
                content = head + file.read() if _MARKUP.match(head) or head.startswith(GZIP) else head
            if (cleaned := self._clean_part(content, entry.filename)) is not content:
                changed[entry] = cleaned
        rewritten = BytesIO()
        with zipfile.ZipFile(rewritten, "w") as made:
            for entry in archive.infolist() if changed else ():
                name = entry.filename
                if not entry.flag_bits & _UTF_8_NAME:  # programs often leave this flag out
                    name = name.encode("cp437").decode("utf-8", "replace")
                made.writestr(zipfile.ZipInfo(name), changed[entry] if entry in changed else archive.read(entry))
        return rewritten.getvalue() if changed else data

    def _clean_part(self, data: bytes, part: str = "") -> bytes:
        """A file of a package, or one in a data URL."""
        markup = data
        with suppress(zlib.error):
            markup = decompress(data, _MAX_SVG)
        if not _MARKUP.match(markup) or not (part in self._clicked or any(hint in markup for hint in _HINTS)):
            return data
        root = _parse(markup)
        before = self._changes
        if root is None:
            return data
        types = root.getroottree().docinfo.internalDTD
        if types is not None:  # LibreOffice would expand its entities again, and add attributes that it declares
            self._changes += 1
            for entity in types.iterentities():
                if entity.system_url:
                    self._note(entity.system_url)
            root = _parse(etree.tostring(root))  # names in entities get their namespaces
        for relation in _RELATIONS(root):
            self._clean_relation(relation, join(dirname(dirname(part)), basename(part).removesuffix(".rels")))
        for value in _REFERENCES(root):
            self._clean_reference(value, part)
        for element in _FIELDS(root):
            if found := _COMMAND.match(element.text or ""):
                self._note(found[0])
                element.text = ""
        if self._changes == before:
            return data
        return bytes(etree.tostring(root, encoding="UTF-8", xml_declaration=True, standalone=True))

    def _clean_relation(self, relation: etree._Element, owner: str) -> None:
        kind = relation.get("Type", "").rpartition("/")[2]
        target = relation.get("Target", "")
        if kind == "hyperlink":
            self._clicked.setdefault(owner, {})[relation.get("Id", "")] = target
        else:
            self._note(target, kind)
            relation.set("Target", _NOWHERE)

    def _clean_reference(self, value: etree._ElementUnicodeResult, part: str) -> None:
        element = value.getparent()
        name = str(value.attrname)
        link = value.strip()
        kind = str(etree.QName(element).localname)
        if kind in _CLICKED or (name == "href" and element.tag.startswith(_VML)):
            return
        if name.endswith("instr"):
            outside = bool(_COMMAND.match(link))
        elif "/relationships}" in name:
            link = self._clicked.get(part, {}).get(value, "")
            outside = bool(link)
        elif link[:5].lower() == "data:":
            outside = not self._clean_data_url(element, name, link)
        else:
            outside = _is_outside(link, dirname(part))
        if outside:
            self._note(link, kind)
            del element.attrib[name]

    def _clean_data_url(self, element: etree._Element, name: str, link: str) -> bool:
        """Removes the references of the file in a data URL. Returns False if it cannot be decoded."""
        header, _, body = link.partition(",")
        try:
            data = decode_body(header, body)
        except CorruptInput:
            return False
        if (cleaned := self._clean_part(data)) is not data:
            element.set(name, f"{header.partition(';')[0]};base64,{b64encode(cleaned).decode()}")
        return True

    def _blanked(self, command: re.Match[bytes]) -> bytes:
        self._note(command[0].replace(b"\0", b"").decode())
        return b" " * len(command[0])

    def _clean_rtf(self, data: bytes) -> bytes:
        """The file with other names of the fields that load files: their stored text is shown."""
        made, *pieces = _RTF_FIELD.split(data)
        texts = [_RTF_FORMAT.sub(b"", piece).decode("latin-1") for piece in pieces]
        found = [_COMMAND.match(text) or _RTF_ESCAPED.match(text) for text in texts]
        hidden = any("INCLUDEPICTURE" in text.upper() for text, one in zip(texts, found, strict=True) if not one)
        for number, one in enumerate(found):
            if one or hidden:
                self._note(one[0] if one else "INCLUDEPICTURE")
            pieces[number] = (rb"\*\ignored" if one or hidden else rb"\fldinst") + pieces[number]
        return b"".join((made, *pieces))


def _parse(markup: bytes) -> etree._Element | None:
    # The parser limits what entities expand to, unless texts may be huge.
    huge = b"<!ENTITY" not in markup
    parser = etree.XMLParser(resolve_entities="internal", no_network=True, recover=True, huge_tree=huge)
    try:
        return etree.parse(BytesIO(markup), parser).getroot()
    except etree.XMLSyntaxError:
        return None


def _is_outside(link: str, folder: str) -> bool:
    """Whether it leads out of the package from this folder."""
    path = unquote(_INSIDE.sub("", link, count=1)).replace("\\", "/")
    return path[:1] != "#" and bool(_OUTSIDE.match(path) or normpath(join(folder, path)).startswith(".."))
