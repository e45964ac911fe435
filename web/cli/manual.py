"""The manual page of the command: its help, of all commands, as roff."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from click.core import Context, Parameter

_ENVIRONMENT = {
    "CONVERTD_API_KEY": "The API key for --remote, in place of the one of convertd login.",
    "CONVERTD_URL": "The server of convertd jobs, if --remote is not given.",
    "CONVERTD_CONFIG": "A TOML file with settings. Each setting is a variable, too; convertd config lists them.",
}
_TYPES = {"<str>": "TEXT", "<int range>": "N", "<path>": "FILE"}
_STATUS = {"0": "Success.", "1": "A conversion or the command failed.", "2": "Wrong usage."}


def manual(root: Any, version: str) -> str:
    """Returns the manual page of a group of commands, and of all commands below it."""
    context = root.make_context("convertd", [], resilient_parsing=True)
    lines = [f'.TH CONVERTD 1 "" "convertd {version}" "User Commands"', ".SH NAME"]
    lines += [_text(f"convertd - {root.help}".rstrip(".")), ".SH SYNOPSIS", r".B convertd"]
    lines += [r"\fICOMMAND\fR [\fIOPTIONS\fR] [\fIARGUMENTS\fR]", ".SH COMMANDS"]
    lines += _commands(context, "")
    for title, entries in (("ENVIRONMENT", _ENVIRONMENT), ("EXIT STATUS", _STATUS)):
        lines.append(f".SH {title}")
        for name, meaning in entries.items():
            lines += [".TP", rf"\fB{_text(name)}\fR", _text(meaning)]
    return "\n".join([*lines, ""])


def _commands(context: Context, prefix: str) -> Iterator[str]:
    group: Any = context.command
    for name in group.list_commands(context):
        _, command, _ = group.resolve_command(context, [name])
        inner = command.make_context(name, [], parent=context, resilient_parsing=True)
        command = inner.command
        if hasattr(command, "list_commands"):
            yield from _commands(inner, f"{prefix}{name} ")
            continue
        arguments = " ".join(_metavar(one, inner) for one in command.params if one.param_type_name == "argument")
        yield f".SS convertd {_text(prefix + name)} [OPTIONS] {_text(arguments)}".rstrip()
        yield _text(command.help or "")
        for parameter in command.params:
            if described := _text(getattr(parameter, "help", None) or ""):
                yield from (".TP", _names(parameter, inner), described)


def _names(parameter: Parameter, context: Context) -> str:
    """The names of a parameter with its value, such as `-o, --output OUTPUT`."""
    value = "" if getattr(parameter, "is_flag", False) else rf" \fI{_text(_metavar(parameter, context))}\fR"
    if parameter.param_type_name == "argument":
        return value.strip()
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=len)
    return ", ".join(rf"\fB{_text(name)}\fR" for name in names) + value.rstrip()


def _metavar(parameter: Parameter, context: Context) -> str:
    shown = parameter.make_metavar(context).strip("{}").strip()
    return _TYPES.get(shown, shown)


def _text(text: str) -> str:
    """Text without the characters that roff reads: backslashes, hyphens, and dots at the begin of lines."""
    escaped = re.sub(r"\s+", " ", text).strip().replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
