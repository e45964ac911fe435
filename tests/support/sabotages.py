"""Third-party plugins that do harm: each is a distribution with one module and one entry point."""

from collections.abc import Mapping
from pathlib import Path

_PLUGIN = '''
"""A plugin for files that begin with ODD!."""
{before}
from engine import RASTER, FileFormat, Raster, conversion, hookimpl, tool, transform

def sniff(content):
    if content[:4] == b"ODD!":
        return 4
    {sniff}
    return 0

ODD = FileFormat("{name}", **{{"media_type": "image/x-{name}", "extensions": ("{name}",), "sniff": sniff, {fields}}})

@conversion(ODD, RASTER)
def decode(data):
    raise ValueError
{after}
'''
_DETECTION = {
    "returns text": ('return "png"', "'png' is no number"),
    "returns nothing": ("return None", "None is no number"),
    "returns a fraction": ("return 0.5", "0.5 is no number"),
    "returns a huge number": ("return 10**9", "1000000000 is no number"),
    "returns a negative number": ("return -1", "-1 is no number"),
    "returns a list": ("return [1]", "[1] is no number"),
    "takes all files": ("return 64", "files are detected as odd"),
    "takes photos": ('return 7 if content[6:10] == b"JFIF" else 0', "jpeg files are detected as odd"),
    "raises": ("raise IndexError(20)", "fails: IndexError: 20"),
    "exits": ("raise SystemExit(3)", "SystemExit: 3"),
    "raises a panic": ("raise BaseException", "BaseException"),
    "recurses": ("return sniff(content)", "RecursionError"),
    "loops": ("while True: pass", "longer than 3 s"),
    "sleeps": ("__import__('time').sleep(0.1)", "longer than 3 s"),
    "takes memory": ("kept.append(bytearray(1 << 30))", "switched off: MemoryError"),
    "changes the content": ("content[:4] = b'ODD!'", "TypeError"),
    "closes files": ("__import__('os').closerange(0, 100)", "ends the process"),
    "prints": ("print('trace', flush=True)", "prints to standard output"),
}
_IMPORT = {
    "import raises": ("raise RuntimeError('broken' * 9999)", "RuntimeError: broken"),
    "import loops": ("while True: pass", "longer than 3 s"),
    "import sleeps": ("import time; time.sleep(60)", "longer than 3 s"),
    "import exits": ("import sys; sys.exit()", "SystemExit"),
    "import exits at once": ("import os; os._exit(0)", "ends the process, with status 0"),
    "import crashes": ("import ctypes; ctypes.string_at(0)", "ends the process with signal 11"),
    "import forks": ("import os; os.fork()", "leaves a process"),
    "import starts a process": ("import subprocess; subprocess.Popen(['sleep', '60'])", "leaves a process"),
    "import leaves a thread": (
        "import threading, time; threading.Thread(target=time.sleep, args=(60,)).start()",
        "leaves a thread",
    ),
    "import takes memory": ("kept = [bytearray(1 << 28) for _ in range(99)]", "MemoryError"),
    "exit loops": ("import atexit, time; atexit.register(time.sleep, 60)", "longer than 3 s"),
    "exit prints": ("import atexit; atexit.register(print, 'bye')", "prints to standard output"),
    "another version": ("PLUGIN_API = 2", "PLUGIN_API 2"),
    "another module": ("import no_such_module", "No module named"),
    "no syntax": ("def", "SyntaxError"),
}
_HARMLESS = {
    "import prints": "import os; print('hello'); os.write(1, b'hello'); os.system('echo hello')",
    "import prints in C": "import ctypes; ctypes.CDLL(None).printf(b'hello')",
    "import closes the output": "import os, sys; sys.stdout.close(); os.close(1)",
    "import changes the folder": "import os; os.chdir('/')",
    "import leaves a daemon": "import time, threading as t; t.Thread(None, time.sleep, args=[60], daemon=True).start()",
    "import sets an alarm": "import signal; signal.alarm(1)",
    "import ignores signals": "import signal; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN)",
    "import changes the locale": "import locale; locale.setlocale(locale.LC_ALL, 'C')",
    "import changes the mask": "import os; os.umask(0o777)",
    "import changes the environment": "import os; os.environ.clear(); os.environ['PATH'] = '/none'",
    "import ignores warnings": "import warnings; warnings.simplefilter('error')",
    "import configures logging": "import logging.config; logging.config.dictConfig({'version': 1}); logging.disable()",
    "import limits recursion": "import sys; sys.setrecursionlimit(120)",
    "import stops collection": "import gc; gc.disable()",
    "import adds a path": "import os, sys; sys.path.insert(0, os.path.dirname(__file__) + '/shadows')",
}
_OTHER_FORMAT = """
OTHER = FileFormat({!r}, media_type="a/b", extensions=("other",), sniff=sniff)
@conversion(OTHER, RASTER)
def other(data): ...
"""
_TOOL = """
@tool({!r}, ODD, title={!r}, sources=(ODD,))
def odd_tool(data): return data
"""
_ENCODER = """
@conversion(RASTER, ODD, capabilities={})
def encode(raster, *, {}): return b"ODD!"
"""
_TRANSFORM = """
from engine.option_types import Width
@transform(RASTER, always={})
def spoil(raster, *, {}): raise ValueError
"""
_DECODER = """
import functools
from dataclasses import replace
decode = replace(decode, {})
"""
_HOOK = """
@hookimpl
def conversions(): {}
"""
_DECLARED = {
    "a format of others": (_OTHER_FORMAT.format("png"), "png belongs to png"),
    "an alias as its name": (_OTHER_FORMAT.format("jpg"), "jpg belongs to jpeg"),
    "a tool of others": (_TOOL.format("pdf-merge", "Odd"), "the tool pdf-merge differently"),
    "a tool with a path": (_TOOL.format("../odd tool", "Odd"), "is no id of a tool"),
    "a tool without a name": (_TOOL.format("", "Odd"), "is no id of a tool"),
    "a title of others": (_TOOL.format("odd-merge", "Merge PDFs"), "another tool has the title"),
    "a long title": (_TOOL.format("odd-merge", "Odd " * 9999), "is no title of a tool"),
    "an option of another type": (_ENCODER.format(None, "width: str = 'a'"), "the option width differently"),
    "an option without a type": (_ENCODER.format(None, "width=1"), "not a plain value"),
    "a capability that raises": (
        _ENCODER.format("lambda options: options['none']", "odd: int = 1"),
        "KeyError: 'none'",
    ),
    "a transform for all": (_TRANSFORM.format(True, "odd: int = 1"), "requests that do not ask"),
    "a transform with an option of others": (_TRANSFORM.format(False, "width: Width = 1"), "requests that do not ask"),
    "a step of no function": (_DECODER.format("run=functools.partial(len)"), "AttributeError"),
    "a step of no cost": (_DECODER.format("cost='much'"), "TypeError"),
    "a module of text": ("MODULES = 'rawpy'", "MODULES"),
    "a hook that raises": (_HOOK.format("raise KeyError"), "KeyError"),
    "a hook without a list": (_HOOK.format("return 5"), "not iterable"),
    "a hook of numbers": (_HOOK.format("return [5]"), "the hook conversions returns 5"),
    "a hook without an end": (_HOOK.format("yield from iter(lambda: decode, None)"), "longer than 3 s"),
    "an unknown hook": (_HOOK.replace("conversions", "conversion").format("return []"), "unknown hook"),
}
_FIELDS = {
    "an extension of others": ('"extensions": ("odd", "jpg")', "jpg belongs to jpeg"),
    "an extension with a slash": ('"extensions": ("odd", "../odd")', "is no name or extension"),
    "a text extension of others": ('"text_extensions": ("txt",)', "txt belongs to txt"),
    "a media type of others": ('"media_type": "image/jpeg"', "image/jpeg belongs to jpeg"),
    "a media type with a line": ('"media_type": "image/odd\\r\\nX-Odd: 1"', "is no media type"),
    "no detection": ('"sniff": None', "TypeError"),
}


def _source(name: str = "odd", **parts: str) -> str:
    return _PLUGIN.format(**{"name": name, "before": "", "sniff": "pass", "fields": "", "after": "", **parts})


REFUSED: Mapping[str, tuple[str, str]] = {
    **{name: (_source(sniff=code, before="kept = []"), why) for name, (code, why) in _DETECTION.items()},
    **{name: (_source(before=code), why) for name, (code, why) in _IMPORT.items()},
    **{name: (_source(after=code), why) for name, (code, why) in _DECLARED.items()},
    **{name: (_source(fields=code), why) for name, (code, why) in _FIELDS.items()},
}
"""The sources of plugins that are to be left out, and a part of the reason, by what they do."""

BUSY = frozenset({"loops", "import loops", "a hook without an end", "takes memory", "import takes memory"})
"""Those of them that take seconds of CPU time."""

HARMLESS: Mapping[str, str] = {
    name: _source(f"odd{number}", before=code) for number, (name, code) in enumerate(_HARMLESS.items())
}
"""The sources of plugins that work, and whose import changes nothing."""


def install(folder: Path, name: str, source: str, module: str = "") -> None:
    """Installs a plugin as a distribution in a folder of modules."""
    module = module or f"convertd_{name}"
    (folder / f"{module}.py").write_text(source)
    metadata = folder / f"{module}-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[convertd.plugins]\n{name} = {module}\n")
