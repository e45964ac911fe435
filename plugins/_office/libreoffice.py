"""LibreOffice: runs in a process and with a profile of its own for each file, and lists the fonts that it lacks.

Its library is called instead of the program soffice, which needs sockets.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import NamedTuple

from engine import CorruptInput, InvalidOption, Requirement, StepFailed, WorkerCrashed
from plugins import _programs

_SOFFICE = _programs.find("soffice")
_FOLDER = Path(*_SOFFICE).parent
# Debian's packages have all of LibreOffice in one library where that is faster to load.
_LIBRARIES = [path for name in ("libmergedlo.so", "libsofficeapp.so") if (path := _FOLDER / name).exists()]

PROGRAMS = _programs.find_python() if _SOFFICE and _LIBRARIES else ()
"""The path of Python, which calls LibreOffice in a process of its own; empty if LibreOffice is not installed."""
LIBREOFFICE = Requirement(
    "LibreOffice",
    "reading and writing files of Office",
    "sh config/setup.sh office",
    present=bool(PROGRAMS),
)

_BOOTSTRAP = _FOLDER / "bootstraprc"
_PRODUCT = re.search(r"^ProductKey=\D* ([\d.]+)$", _BOOTSTRAP.read_text() if PROGRAMS else "", re.MULTILINE)
VERSION = tuple(map(int, _PRODUCT[1].split("."))) if _PRODUCT else ()
"""The version of LibreOffice, such as (7, 4); empty if it is not installed."""
_CODE = Path(__file__).with_name("libreoffice_process.py").read_text()
_LIBRARY = 'xmlns:library="http://openoffice.org/2000/library" xmlns:xlink="http://www.w3.org/1999/xlink"'
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
# Without the first setting, LibreOffice copies its presets into the profile. Without its own version in the second one,
# it does the work of a first start, three quarters of the CPU time of a short document. A link is never updated.
_SETTINGS = f"""\
<item oor:path="/org.openoffice.Setup/Office"><prop oor:name="ooSetupInstCompleted" oor:op="fuse">\
<value>true</value></prop></item>
<item oor:path="/org.openoffice.Setup/Product"><prop oor:name="ooSetupLastVersion" oor:op="fuse">\
<value>{_PRODUCT[1] if _PRODUCT else ""}</value></prop></item>
<item oor:path="/org.openoffice.Office.Common/Security/Scripting"><prop oor:name="MacroSecurityLevel" oor:op="fuse">\
<value>3</value></prop><prop oor:name="BlockUntrustedRefererLinks" oor:op="fuse"><value>true</value></prop></item>
<item oor:path="/org.openoffice.Office.Writer/Content/Update"><prop oor:name="Link" oor:op="fuse">\
<value>0</value></prop></item>
<item oor:path="/org.openoffice.Office.Calc/Content/Update"><prop oor:name="Link" oor:op="fuse">\
<value>2</value></prop></item>
"""
# The library sets the locale en-US, where paper is not A4. With the system's locale, which the program uses, paper is
# A4 and numbers are the same. MacroExecutionMode 0 is NEVER_EXECUTE, UpdateDocMode 0 NO_UPDATE.
# Without ShrinkToFit, cells with numbers, dates and formulas (1 + 2 + 16) that are too narrow would show ###;
# with adjusted heights, rows would become higher than they are in the file.
_MACRO = """\
Sub Main
  On Error GoTo Failed
  Dim node(0) As New com.sun.star.beans.NamedValue
  node(0).Name = "nodepath"
  node(0).Value = "/org.openoffice.Setup/L10N"
  provider = createUnoService("com.sun.star.configuration.ConfigurationProvider")
  locale = provider.createInstanceWithArguments("com.sun.star.configuration.ConfigurationUpdateAccess", node())
  locale.replaceByName("ooSetupSystemLocale", "")
  locale.commitChanges()
  Dim reading(4) As New com.sun.star.beans.PropertyValue
  reading(0).Name = "Hidden"
  reading(0).Value = True
  reading(1).Name = "MacroExecutionMode"
  reading(1).Value = 0
  reading(2).Name = "UpdateDocMode"
  reading(2).Value = 0
  reading(3).Name = "FilterName"
  reading(3).Value = Environ("READER")
  If Environ("PASSWORD") &lt;&gt; "" Then
    reading(4).Name = "Password"
    reading(4).Value = Environ("PASSWORD")
  End If
  Dim writing(1) As New com.sun.star.beans.PropertyValue
  writing(0).Name = "FilterName"
  writing(0).Value = Environ("FILTER")
  If Environ("EXPORT") &lt;&gt; "" Then
    items = Split(Environ("EXPORT"), " ")
    ReDim settings(UBound(items)) As New com.sun.star.beans.PropertyValue
    For index = 0 To UBound(items)
      pair = Split(items(index), "=")
      settings(index).Name = pair(0)
      If IsNumeric(pair(1)) Then settings(index).Value = CLng(pair(1)) Else settings(index).Value = pair(1) = "true"
    Next
    writing(1).Name = "FilterData"
    writing(1).Value = settings()
  End If
  document = StarDesktop.loadComponentFromURL(Environ("SOURCE"), "_blank", 0, reading())
  If Environ("PAPER") &lt;&gt; "" Then
    sides = Split(Environ("PAPER"), " ")
    pages = document.StyleFamilies.getByName("PageStyles")
    For index = 0 To pages.Count - 1
      page = pages.getByIndex(index)
      shorter = IIf(page.Width &lt; page.Height, page.Width, page.Height)
      longer = page.Width + page.Height - shorter
      wide = page.Width &gt; page.Height
      If sides(0) &lt;&gt; "-" Then shorter = CLng(sides(0))
      If sides(1) &lt;&gt; "-" Then longer = CLng(sides(1))
      If sides(2) &lt;&gt; "-" Then wide = sides(2) = "1"
      page.IsLandscape = wide
      page.Width = IIf(wide, longer, shorter)
      page.Height = IIf(wide, shorter, longer)
      If sides(3) &lt;&gt; "-" And 2 * CLng(Replace(sides(3), "-", "0")) &lt; shorter Then
        page.LeftMargin = CLng(sides(3))
        page.RightMargin = CLng(sides(3))
        page.TopMargin = CLng(sides(3))
        page.BottomMargin = CLng(sides(3))
      End If
    Next
  End If
  If Environ("CHANGES") &lt;&gt; "" Then
    dispatcher = createUnoService("com.sun.star.frame.DispatchHelper")
    command = IIf(Environ("CHANGES") = "final", ".uno:AcceptAllTrackedChanges", ".uno:RejectAllTrackedChanges")
    dispatcher.executeDispatch(document.CurrentController.Frame, command, "", 0, Array())
  End If
  If Environ("SHEET") &lt;&gt; "" Then
    chosen = -1
    For index = 0 To document.Sheets.Count - 1
      If document.Sheets(index).Name = Environ("SHEET") Or CStr(index + 1) = Environ("SHEET") Then chosen = index
    Next
    If chosen = -1 Then
      Open Environ("MISSING") For Output As #1
      Close #1
      Exit Sub
    End If
    document.Sheets(chosen).IsVisible = True
    For index = 0 To document.Sheets.Count - 1
      If index &lt;&gt; chosen Then document.Sheets(index).IsVisible = False
    Next
  End If
  If Environ("FILTER") = "calc_pdf_Export" Then
    If Environ("FIT") = "1" Then
      pages = document.StyleFamilies.getByName("PageStyles")
      For index = 0 To pages.Count - 1
        pages.getByIndex(index).ScaleToPagesX = 1
        pages.getByIndex(index).ScaleToPagesY = 0
      Next
    End If
    document.IsAdjustHeightEnabled = False
    For index = 0 To document.Sheets.Count - 1
      cells = document.Sheets(index).queryContentCells(19)
      If cells.Count &gt; 0 Then cells.ShrinkToFit = True
    Next
  End If
  document.storeToURL(Environ("RESULT"), writing())
Failed:
End Sub
"""
_PROFILE: Mapping[str, str] = MappingProxyType(
    {
        # LibreOffice draws nothing in place of emoji in color.
        "fontconfig/fonts.conf": '<fontconfig><dir prefix="cwd">fonts</dir><selectfont><rejectfont><pattern>'
        '<patelt name="color"><bool>true</bool></patelt></pattern></rejectfont></selectfont>'
        "<alias><family>Calibri Light</family><prefer><family>Carlito</family></prefer></alias></fontconfig>",
        "registrymodifications.xcu": f'{_XML}<oor:items xmlns:oor="http://openoffice.org/2001/registry">\n'
        f"{_SETTINGS}</oor:items>",
        "basic/script.xlc": f'{_XML}<library:libraries {_LIBRARY}><library:library library:name="Standard" '
        'xlink:href="$(USER)/basic/Standard/script.xlb/" xlink:type="simple" library:link="false"/>'
        "</library:libraries>",
        "basic/Standard/script.xlb": f'{_XML}<library:library {_LIBRARY} library:name="Standard" '
        'library:readonly="false" library:passwordprotected="false"><library:element library:name="Conversion"/>'
        "</library:library>",
        "basic/Standard/Conversion.xba": f'{_XML}<script:module xmlns:script="http://openoffice.org/2000/script" '
        f'script:name="Conversion" script:language="StarBasic">{_MACRO}</script:module>',
    }
)
_MACRO_URL = "macro:///Standard.Conversion.Main()"
_DID_NOT_START = 1  # exit code of the process
# The log of fontconfig: the family that LibreOffice asks for, before its alternatives, and the one that it gets. It
# asks with a charset for characters that a font lacks, also one that is installed.
_REQUEST = "\nMatch Pattern has "
_FAMILY = re.compile(r'\n\tfamily: "([^"]+)"')
_CHARACTERS = "\n\tcharset: "


class Filter(NamedTuple):
    """A filter of LibreOffice that writes files with this extension.

    `paper` changes the pages: their shorter and longer side, whether they are wide (`1` or `0`), and their margin, in
    hundredths of a millimeter; `-` leaves what the document has. `export` has settings of the filter, such as
    `UseTaggedPDF=true`. Tracked `changes` are as in the document, `final` or `original`. `sheet` is the name or number
    of the only sheet, and `fit` scales sheets to the width of a page.
    """

    name: str
    extension: str = "pdf"
    paper: str = ""
    export: tuple[str, ...] = ()
    changes: str = ""
    sheet: str = ""
    fit: bool = False


class Written(NamedTuple):
    """A file that LibreOffice has written, and the fonts that it replaced, by their names."""

    data: bytes
    substituted: Mapping[str, str]


def convert(
    data: bytes, extension: str, filter_: Filter, password: str | None = None, *, fonts: Iterable[bytes] = ()
) -> Written:
    """Converts a file with this extension. `fonts` are additional ones.

    LibreOffice runs again if it crashes. Raises CorruptInput for an unreadable file, InvalidOption for a sheet that is
    not there, and WorkerCrashed.
    """
    fonts = [*fonts]
    written = _try(data, extension, filter_, password, fonts) or _try(data, extension, filter_, password, fonts)
    if written is None:
        raise WorkerCrashed("LibreOffice has crashed twice.")
    return written


def _try(data: bytes, extension: str, filter_: Filter, password: str | None, fonts: Sequence[bytes]) -> Written | None:
    """The result, also if LibreOffice crashes after it is written; None if it crashes before."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fonts").mkdir()
        for number, font in enumerate(fonts):
            (folder / "fonts" / f"{number}.otf").write_bytes(font)
        source = folder / f"document.{extension}"
        source.write_bytes(data)
        for path, text in _PROFILE.items():
            file = folder / "profile" / "user" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        variables = {
            "SOURCE": source.as_uri(),
            "RESULT": (folder / f"result.{filter_.extension}").as_uri(),
            "FILTER": filter_.name,
            "READER": "MS Excel 97" if extension == "xls" else "",  # by itself, it reads a damaged file as text
            "PAPER": filter_.paper,
            "EXPORT": " ".join(filter_.export),
            "CHANGES": filter_.changes,
            "SHEET": filter_.sheet,
            "FIT": str(int(filter_.fit)),
            "MISSING": (folder / "missing").as_uri(),
            "PASSWORD": password or "",
        }
        status, messages = _run(folder, variables)
        result = folder / f"result.{filter_.extension}"
        if result.exists():
            return Written(result.read_bytes(), _substituted(messages))
        if (folder / "missing").exists():
            message = f"The workbook has no sheet {filter_.sheet}."
            raise InvalidOption(message, reason="out_of_range", param="sheet")
        if status == _DID_NOT_START:
            raise StepFailed("LibreOffice does not start.")
        if status < 0:  # ended by a signal
            return None
        raise CorruptInput("LibreOffice cannot read the file.")


def _run(folder: Path, variables: Mapping[str, str]) -> tuple[int, str]:
    """Runs the macro in a process with these environment variables. Returns its status and fontconfig's messages."""
    profile = (folder / "profile").as_uri()
    with (folder / "messages").open("w+", errors="replace") as messages:
        process = subprocess.run(
            [*PROGRAMS, "-I", "-S", "-c", _CODE, str(_LIBRARIES[0]), str(_FOLDER), profile, _MACRO_URL],
            env={
                "HOME": str(folder),
                "TMPDIR": str(folder),
                "XDG_CONFIG_HOME": str(folder / "profile" / "user"),
                "LANG": "C.UTF-8",
                "SAL_USE_VCLPLUGIN": "svp",
                "SAL_DISABLE_OPENCL": "1",
                "UNO_SHARED_PACKAGES_CACHE": f"{profile}/shared",  # extensions of all users, which jobs cannot read
                "FC_DEBUG": "1",
                **variables,
            },
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=messages,
            stderr=subprocess.DEVNULL,
            check=False,
        )
        messages.seek(0)
        return process.returncode, messages.read()


def _substituted(messages: str) -> dict[str, str]:
    """The families that were asked for and are not installed, and those that took their place."""
    missing: dict[str, str] = {}
    for block in messages.split(_REQUEST)[1:]:
        request, _, answer = block.partition("\n\n")
        asked, found = _FAMILY.search(request), _FAMILY.search(answer)
        if asked and found and asked[1] != found[1] and (asked[1] in missing or _CHARACTERS not in request):
            missing[asked[1]] = found[1]
    return missing
