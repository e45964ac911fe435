"""Flags of `convert` and the commands of tools: made from the options that plugins declare."""

# ruff: noqa: PLC0415
from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from web.cli_output import FAILED, exit_with

if TYPE_CHECKING:
    from engine.options import Option

Overwrite = Annotated[
    bool | None,
    typer.Option(
        "--overwrite/--no-overwrite", "-y/-n", help="Replace existing files, or keep them.", show_default=False
    ),
]
Server = Annotated[
    str | None,
    typer.Option("--remote", metavar="URL", help="Convert on this server, with the API key in CONVERTD_API_KEY."),
]


def convert_command(declared: Callable[..., None], run: Callable[..., None]) -> Any:
    """Returns the command `convert` as `declared`, with a flag for each option of the registry. It calls `run`."""
    from engine.registry import load_registry

    def convert(**values: Any) -> None:
        run(**values)

    own = signature(declared, eval_str=True).parameters
    panel = "Options of conversions; a pair of formats has some of them"
    registry = load_registry()
    options = (option for name, option in registry.options.items() if name not in own)
    flags = [_flag(option, registry.default_text(option.name), panel) for option in options]
    return _command("convert", declared.__doc__, convert, [*own.values(), *flags])


def tool_command(name: str) -> Any:
    """Returns the command of the tool with this name; None if there is none."""
    from engine.registry import load_registry

    tool = load_registry().tools.get(name)
    if tool is None:
        if lacking := load_registry().lacking(name):
            exit_with(f"{name} needs {lacking.name}; install it with: {lacking.install}", FAILED)
        return None

    def run(
        inputs: list[Path], output: Path, overwrite: bool | None = None, server: str | None = None, **values: Any
    ) -> None:
        from web import cli_convert, cli_tasks

        given = {option: value for option, value in values.items() if value is not None and option not in tool.files}
        files = {option: Path(values[option]) for option in tool.files if values[option] is not None}
        cli_convert.run_tool(cli_tasks.ToolArguments(name, inputs, output, overwrite, files), given, server)

    count = "INPUT..." if tool.takes_several else "INPUT"
    inputs = typer.Argument(metavar=count, help="Input files; - is standard input.")
    output = typer.Option("-o", "--output", help="Output file; - is standard output.")
    annotations = {
        "inputs": Annotated[list[Path], inputs],
        "output": Annotated[Path, output],
        "overwrite": Overwrite,
        "server": Server,
    }
    parameters = signature(run).parameters
    own = [parameters[name].replace(annotation=annotation) for name, annotation in annotations.items()]
    panel = "Options of the tool"
    options = load_registry().tool_options(name).values()
    flags = [_flag(option, "" if option.default is None else str(option.default).lower(), panel) for option in options]
    flags += [_file_flag(name, file.description, panel) for name, file in tool.files.items()]
    return _command(name, tool.summary, run, [*own, *flags])


def _command(name: str, manual: str | None, run: Callable[..., None], parameters: list[Parameter]) -> Any:
    """Returns a command that calls `run` with these parameters."""
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = Signature(parameters)
    app = typer.Typer(add_completion=False)
    app.command(name, help=manual)(run)
    return typer.main.get_command(app)


def _file_flag(name: str, description: str, panel: str) -> Parameter:
    declaration = typer.Option(f"--{name.replace('_', '-')}", help=description, metavar="FILE", rich_help_panel=panel)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[Path | None, declaration])


def _flag(option: Option, default: str, panel: str) -> Parameter:
    """The parameter of an option, None by default. Booleans have the flags `--name` and `--no-name`."""
    flag, is_switch = option.name.replace("_", "-"), option.schema["type"] == "boolean"
    details = [] if is_switch else [option.values]
    if option.required:
        details.append("required")
    if default:
        details.append(f"default {default}")
    description = option.schema.get("description", "").replace("`", "")
    declaration = typer.Option(
        f"--{flag}/--no-{flag}" if is_switch else f"--{flag}",
        help=f"{description} ({'; '.join(details)})" if details else description,
        metavar="" if is_switch else "VALUE",
        show_default=False,
        rich_help_panel=panel,
    )
    annotation = Annotated[bool | None if is_switch else str | None, declaration]  # type: ignore[valid-type]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
