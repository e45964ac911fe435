"""Flags of `convert` and the commands of tools: made from the options that plugins declare."""

# ruff: noqa: PLC0415
from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from web.cli.output import FAILED, WRONG_USAGE, Json, exit_with

if TYPE_CHECKING:
    from engine.conversions import AnyTool
    from engine.options import InputFile, Option
    from web.cli.results import Display

# Objects until the next garbage collection: more than a command creates that converts one file. With the default, the
# collector visits what imports create again and again, for a tenth of the CPU time of a small conversion.
_NEW_OBJECTS = 100_000


OUTPUT_FORMAT = "output_format"
"""What the API calls the flag `--to`."""


def _complete_input(incomplete: str) -> list[str]:
    """The formats that can be read, for the shell."""
    return _formats(incomplete, outputs=False)


def _complete_output(incomplete: str) -> list[str]:
    """The formats that can be written, for the shell."""
    return _formats(incomplete, outputs=True)


def _formats(incomplete: str, *, outputs: bool) -> list[str]:
    from engine.registry import load_registry

    pairs = load_registry().catalogue()
    names = {(plan.target if outputs else plan.source).name for plan in pairs}
    return sorted(name for name in names if name.startswith(incomplete.lower()))


Inputs = Annotated[  # paths of inputs and outputs are text, because the last one may end with a slash
    list[str],
    typer.Argument(
        metavar="INPUT... OUTPUT",
        help="Input files or folders, then the output file or folder, which is made if it ends with a slash; - is "
        "standard input or output. Several files become one if a tool joins them, such as images into a PDF.",
    ),
]
ToolInputs = Annotated[list[Path], typer.Argument(metavar="INPUT...", help="Input files; - is standard input.")]
ToolInput = Annotated[
    list[Path],
    typer.Argument(metavar="INPUT...", help="Input file, or several if OUTPUT is a folder; - is standard input."),
]
Output = Annotated[
    str | None,
    typer.Option(
        "-o",
        "--output",
        metavar="OUTPUT",
        help="The output, instead of the last argument. With a name that ends in .zip, it is a ZIP of all pages.",
    ),
]
ToolOutput = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="OUTPUT",
        help="Output file or folder; - is standard output. Several files of a result are numbered, or in a ZIP if the "
        "name ends in .zip.",
    ),
]
To = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FORMAT",
        help="Output format of every INPUT; repeated, all are written. OUTPUT is then a folder or -, and optional.",
        autocompletion=_complete_output,
    ),
]
From = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="FORMAT",
        help="Format of the INPUT files whose content is ambiguous or unknown.",
        autocompletion=_complete_input,
    ),
]
Recursive = Annotated[bool, typer.Option("-r", "--recursive", help="Convert the folders in folders, too.")]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="With --remote: the server fetches the file. The argument is OUTPUT."),
]
Watch = Annotated[bool, typer.Option("--watch", hidden=True, help="What `convertd watch` does.")]
Outputs = Annotated[
    str | None,
    typer.Option(
        metavar="JSON",
        help="Multiple outputs of each INPUT: a JSON list of objects, each with output_format, options and a name. "
        "OUTPUT is then a folder, or a file whose name ends in .zip.",
    ),
]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help="With --remote: the preset of the account whose options are used.")
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        "--explain",
        help="Print the size, steps, losses and options of the result; -v: with all defaults. Converts nothing.",
    ),
]
Submit = Annotated[
    bool, typer.Option("--async", help="With --remote: submit the files, and print the ids of their jobs.")
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", "-j", min=1, max=64, metavar="N", help="Files at a time. Default: one per core; 2 on a server."
    ),
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print errors only.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Print a line for each file that is written.")]
Overwrite = Annotated[
    bool | None,
    typer.Option(
        "--overwrite/--no-overwrite", "-y/-n", help="Replace existing files, or keep them.", show_default=False
    ),
]
Server = Annotated[
    str | None,
    typer.Option(
        "--remote", metavar="URL", help="Convert on this server, with CONVERTD_API_KEY or the key of convertd login."
    ),
]


def convert(
    files: Inputs,
    output: Output = None,
    to: To = None,
    source_format: From = None,
    recursive: Recursive = False,
    overwrite: Overwrite = None,
    dry_run: DryRun = False,
    submit: Submit = False,
    jobs: Jobs = None,
    server: Server = None,
    url: Url = None,
    outputs: Outputs = None,
    preset: Preset = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: Json = False,
    watch: Watch = False,
) -> None:
    """Convert files on this machine, or on a server. Existing files are replaced only with -y or after a question."""
    run_convert(**locals())


def run_convert(
    files: list[str],
    output: str | None,
    to: list[str] | None,
    source_format: str | None,
    recursive: bool,
    overwrite: bool | None,
    dry_run: bool,
    submit: bool,
    jobs: int | None,
    server: str | None,
    url: str | None,
    outputs: str | None,
    preset: str | None,
    quiet: bool,
    verbose: bool,
    as_json: bool,
    watch: bool,
    **options: str | bool | None,
) -> None:
    """Runs `convert` with its arguments, and options of conversions by name."""
    gc.set_threshold(_NEW_OBJECTS)
    from web.cli import conversion, conversion_arguments

    given = {name: value for name, value in options.items() if value is not None}
    arguments = conversion_arguments.Arguments(
        paths=[Path(name) for name in files],
        to=to or (),
        source_format=source_format,
        overwrite=overwrite,
        url=url,
        output=None if output is None else Path(output),
        recursive=recursive,
        folder=(output or "".join(files[-1:])).endswith("/"),
        filename=None if options.get("filename") is None else str(options["filename"]),
        chosen_later=bool(outputs or preset),
        changes=bool(given.keys() - {"filename"}),
        numbered="pages" in given,
    )
    mode = conversion.Mode(
        server=server,
        dry_run=dry_run,
        submit=submit,
        jobs=jobs,
        display=_display(quiet, verbose, as_json),
        outputs=outputs,
        preset=preset,
    )
    if watch:
        from web.cli.watch import run

        return run(arguments, given, mode)
    return conversion.run(arguments, given, mode)


def _display(quiet: bool, verbose: bool, as_json: bool) -> Display:
    from web.cli.results import Display

    return Display(quiet, verbose, as_json)


def convert_command() -> Any:
    """Returns the command `convert` with a flag for each option of the registry."""
    from engine.registry import load_registry

    def run(**values: Any) -> None:
        run_convert(**values)

    own = signature(convert, eval_str=True).parameters
    panel = "Options of conversions; a pair of formats has some of them"
    registry = load_registry()
    options = (option for name, option in registry.options.items() if name not in own)
    flags = [_flag(option, registry.default_text(option.name), panel) for option in options]
    return _command("convert", convert.__doc__, run, [*own.values(), *flags])


def is_word(argument: str) -> bool:
    """Whether an argument is a flag with a name, also after one hyphen, as other programs have them."""
    return argument.startswith("-") and len(argument) > len("-j4")


def check_names(command: Any, arguments: Sequence[str]) -> None:
    """Exits if a flag that `convert` does not have is what other programs, or the API, call one that it has."""
    from engine.options import meant_option

    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    for name in (argument.partition("=")[0] for argument in arguments if is_word(argument)):
        meant = meant_option(name.lstrip("-")) or name.lstrip("-").replace("-", "_")
        flag = f"--{'to' if meant == OUTPUT_FORMAT else meant.replace('_', '-')}"
        if name not in known and flag in known:
            exit_with(f"there is no {name}; the option is {flag}.", WRONG_USAGE)


def check_command(name: str) -> None:
    """Exits if what is no command names a tool, or an option of `convert`, in another way."""
    from engine.options import meant_option
    from engine.registry import load_registry

    registry = load_registry()
    tools = registry.tools.values()
    named = [tool.name for tool in tools if name in tool.name.split("-")]
    option = meant_option(name) or name.replace("-", "_")
    found = [f"convert --{option.replace('_', '-')}"] if option in registry.options else []
    found += named or [tool.name for tool in tools if name in tool.words.split()]
    if found:
        exit_with(f"there is no command {name}; use {' or '.join(found)}.", WRONG_USAGE)


def tool_command(name: str) -> Any:
    """Returns the command of the tool with this name; None if there is none."""
    from engine.registry import load_registry
    from engine.stages import files_of_stages

    tool = load_registry().tools.get(name)
    if tool is None:
        if lacking := load_registry().lacking(name):
            exit_with(f"{name} needs {lacking.name}; install it with: {lacking.install}", FAILED)
        return None

    def run(
        inputs: list[Path],
        output: str,
        overwrite: bool | None = None,
        server: str | None = None,
        quiet: bool = False,
        verbose: bool = False,
        as_json: bool = False,
        **values: Any,
    ) -> None:
        from web.cli import conversion, conversion_arguments

        given = {option: value for option, value in values.items() if value is not None and option not in tool.files}
        files = [(option, Path(path)) for option in tool.files for path in _listed(values[option])]
        files += [(path, Path(path)) for path in files_of_stages(load_registry().tools, tool, given)]
        mode = conversion.Mode(server, display=_display(quiet, verbose, as_json))
        arguments = conversion_arguments.ToolArguments(
            name, inputs, Path(output), overwrite, files, output.endswith("/")
        )
        conversion.run_tool(arguments, given, mode)

    annotations = {
        "inputs": ToolInputs if tool.takes_several else ToolInput,
        "output": ToolOutput,
        "overwrite": Overwrite,
        "server": Server,
        "quiet": Quiet,
        "verbose": Verbose,
        "as_json": Json,
    }
    parameters = signature(run).parameters
    own = [parameters[name].replace(annotation=annotation) for name, annotation in annotations.items()]
    return _command(name, tool.summary, run, [*own, *_tool_flags(tool, load_registry().tool_options(name))])


def _tool_flags(tool: AnyTool, options: Mapping[str, Option]) -> list[Parameter]:
    """The parameters of the options and additional files of a tool."""
    panel = "Options of the tool"
    defaults = {name: "" if one.default is None else str(one.default).lower() for name, one in options.items()}
    flags = [_flag(option, defaults[name], panel) for name, option in options.items()]
    return [*flags, *(_file_flag(name, file, panel) for name, file in tool.files.items())]


def _command(name: str, manual: str | None, run: Callable[..., None], parameters: list[Parameter]) -> Any:
    """Returns a command that calls `run` with these parameters."""
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    vars(run)["__signature__"] = Signature(parameters)
    app = typer.Typer(add_completion=False)
    app.command(name, help=manual)(run)
    return typer.main.get_command(app)


def _file_flag(name: str, file: InputFile, panel: str) -> Parameter:
    """The parameter of an additional file. Its flag is repeated for several files."""
    flag = f"--{name.replace('_', '-')}"
    description = f"{file.description} [required]" if file.minimum else file.description
    declaration = typer.Option(flag, help=description, metavar="FILE", rich_help_panel=panel)
    kind = Annotated[list[Path] | None if file.maximum > 1 else Path | None, declaration]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _listed(value: Any) -> list[Any]:
    """The values of a flag that is given once, several times or not at all."""
    return list(value) if isinstance(value, list | tuple) else [] if value is None else [value]


def _flag(option: Option, default: str, panel: str) -> Parameter:
    """The parameter of an option, None by default. Booleans have the flags `--name` and `--no-name`."""
    flag = option.name.replace("_", "-")
    is_switch = option.schema["type"] == "boolean"
    details = [] if is_switch else [option.values]
    if option.required:
        details.append("required")
    if default:
        details.append(f"default {default}")
    description = option.schema.get("description", "").replace("`", "")
    choices = [str(value) for value in option.schema.get("enum", ())]
    declaration = typer.Option(
        f"--{flag}/--no-{flag}" if is_switch else f"--{flag}",
        help=f"{description} ({'; '.join(details)})" if details else description,
        metavar="" if is_switch else "VALUE",
        show_default=False,
        rich_help_panel=panel,
        autocompletion=lambda incomplete: [value for value in choices if value.startswith(incomplete)],
    )
    annotation = Annotated[bool | None if is_switch else str | None, declaration]  # type: ignore[valid-type]
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
