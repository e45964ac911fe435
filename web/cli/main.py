"""The `convertd` command: serve, convert and others, and one for each tool.

The modules of commands are imported when they run: `convertd --help` must not wait for the engine or the database.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import gc
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from web.cli import installation, option_flags
from web.cli.output import (
    FAILED,
    WRONG_USAGE,
    Json,
    exit_on_storage_errors,
    exit_with,
    load_settings_or_exit,
    print_table,
)

if TYPE_CHECKING:
    from config.settings import Settings
    from engine.registry import Registry
    from engine.sandbox import SandboxReport
    from web.supervisor import Supervisor


_COMMANDS = {
    "account": ("account", "Create, list and delete accounts, grant credits, and check the ledger."),
    "archive": ("archive", "Move the usage and the charges of all months before MONTH into a file."),
    "backup": (
        "backup",
        "Write the database, the stored files and the settings without secrets to FILE. The servers may keep running.",
    ),
    "cluster": ("cluster", "Prepare the machines of a cluster."),
    "jobs": ("jobs", "Conversions that a server runs in the background."),
    "login": ("login", "Keep the API key of a server for --remote."),
    "mcp": (
        "mcp",
        "Give agents tools that convert files, by the Model Context Protocol over standard input and output.",
    ),
    "plugin": ("plugin_commands", "Write a plugin, and check plugins."),
    "watch": (
        "watch",
        "Convert what arrives in a folder, with the flags of convert: convertd watch FOLDER OUTPUT --to FORMAT.",
    ),
    "restore": ("backup", "Restore a backup into an unused data folder, database and store, which the settings name."),
}
"""The commands of other modules of this package: their modules, and what they do."""


class DelayedCommand(TyperCommand):
    """A command of another module, which is imported when the command is called, but not when commands are listed."""

    def __init__(self, name: str) -> None:
        self._module, summary = _COMMANDS[name]
        super().__init__(name, help=summary)

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command itself, with the arguments."""
        app = import_module(f"web.cli.{self._module}").cli
        command: Any = typer.main.get_command(app)
        command = getattr(command, "commands", {}).get(self.name, command)
        command.name = self.name
        command.help = "\n\n".join(filter(None, (self.help, command.help)))
        return command.make_context(info_name, args, parent, **extra)


class Commands(TyperGroup):
    """The commands, and one for each tool, which is read only if no other command has the name.

    `convert` has flags for the options of conversions, which are read only if a flag needs them. Its name can be left
    out before a file or one of its flags.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [*self._implied(ctx, args), *args])

    def _implied(self, ctx: Any, args: list[str]) -> list[str]:
        """`convert` if the arguments begin with a file, or with a flag that is not of all commands."""
        if not args or args[0] in (*self.commands, *_COMMANDS):
            return []
        own = {flag for parameter in self.get_params(ctx) for flag in parameter.opts}
        name = args[0].partition("=")[0]
        is_flag = name.startswith("-") and name not in own
        is_file = {".", "/"} & {*name} or (Path(name).exists() and self.get_command(ctx, name) is None)
        return ["convert"] if is_flag or is_file else []

    def list_commands(self, ctx: Any) -> list[str]:
        tools: Iterable[str] = ()
        if ctx.resilient_parsing:  # the shell completes, or the manual is written; --help does not wait for plugins
            from engine.registry import load_registry

            tools = load_registry().tools
        return [*super().list_commands(ctx), *_COMMANDS, *tools]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in _COMMANDS:
            return DelayedCommand(cmd_name)
        return super().get_command(ctx, cmd_name) or option_flags.tool_command(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        if args[0] == "watch":
            args = ["convert", "--watch", *args[1:]]
        if self.get_command(ctx, args[0]) is None:
            option_flags.check_command(args[0])
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and command.name == "convert":
            known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
            flags = list(takewhile(lambda arg: arg != "--", rest))
            unknown = any(option_flags.is_word(arg) and arg.partition("=")[0] not in known for arg in flags)
            if unknown or "-h" in flags or ctx.resilient_parsing:  # the shell completes flags
                command = option_flags.convert_command()
                rest = [*map(_with_hyphens, flags), *rest[len(flags) :]]
                option_flags.check_names(command, rest[: len(flags)])
        return name, command, rest


def _with_hyphens(argument: str) -> str:
    """The argument, with hyphens in its name if it is a flag: names of options have underscores."""
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value if name.startswith("--") else argument


cli = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    help="Converts files between image, document and camera-RAW formats.",
)


def _print_version(requested: bool) -> None:
    if requested:
        print(f"convertd {_version()}")
        raise typer.Exit


def _version() -> str:
    from importlib.metadata import version

    return version("convertd")


@cli.callback()
def root(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Converts files between image, document and camera-RAW formats."""


def main() -> None:
    """Entry point of the `convertd` script."""
    if hidden := installation.find_hidden():
        sys.exit(f"convertd: {hidden}")
    try:
        cli()
    except ModuleNotFoundError as error:
        if error.name != "convertd_client":
            _exit_if_damaged()
            raise
        sys.exit("convertd: this needs convertd-client; install it in the source folder with: pip install ./web/client")
    except (ImportError, AttributeError):
        _exit_if_damaged()
        raise
    finally:
        gc.freeze()  # the garbage collector would visit all objects at exit, for tens of milliseconds


def _exit_if_damaged() -> None:
    if damaged := installation.find_damaged():
        sys.exit(f"convertd: {damaged}")


@cli.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = 8000,
    processes: Annotated[
        int, typer.Option(min=1, max=64, help="Processes that serve. More than one need CONVERTD_REDIS_URL.")
    ] = 1,
) -> None:
    """Serve the API until stopped.

    With CONVERTD_SIMULATED_CHECKOUT=true, the log has the code for the simulated payment page at the start.
    """
    from config.settings import SettingsError

    _exit_if_damaged()
    settings = load_settings_or_exit().at_port(port)
    supervisor = _supervisor(settings, processes) if processes > 1 else None

    from web import app
    from web.services.operation.maintenance import DataFolderInUse
    from web.workers.executor_setup import SandboxIncomplete

    with exit_on_storage_errors():
        try:
            app.serve(settings, host, port, supervisor)
        except SettingsError as error:
            exit_with(str(error), WRONG_USAGE)
        except (SandboxIncomplete, DataFolderInUse) as error:
            exit_with(str(error), FAILED)
        except OSError as error:
            if error.filename is not None:
                raise  # a file is the cause, not the address
            exit_with(f"cannot serve on {host}:{port}: {error.strerror or error}", FAILED)


def _supervisor(settings: Settings, processes: int) -> Supervisor:
    """Returns what forks the processes. Exits if they could not share their limits."""
    if settings.redis_url is None:
        exit_with("--processes requires CONVERTD_REDIS_URL: processes share the limits of accounts there", WRONG_USAGE)
    from web.supervisor import Supervisor

    return Supervisor(processes)


@cli.command()
def worker(
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="The Dask scheduler. Default: CONVERTD_CLUSTER.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Conversions at a time. Default: CONVERTD_WORKERS, one per core.")
    ] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory for all conversions, such as 4GiB. Default: 70 %.")
    ] = None,
    host: Annotated[str | None, typer.Option(help="The address for servers and the scheduler.")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 is any free one.")] = 0,
) -> None:
    """Run conversions of the servers of a cluster until stopped."""
    _exit_if_damaged()
    settings = load_settings_or_exit()
    with exit_on_storage_errors():
        import asyncio

        from web.services.operation.maintenance import DataFolderInUse
        from web.workers import cluster_worker
        from web.workers.executor_setup import SandboxIncomplete

        try:
            options = cluster_worker.worker_options(settings, scheduler, jobs, memory, host, port)
        except ValueError as error:
            exit_with(str(error), WRONG_USAGE)
        try:
            asyncio.run(cluster_worker.serve_worker(settings, options))
        except (SandboxIncomplete, DataFolderInUse, cluster_worker.WrongInstallation) as error:
            exit_with(str(error), FAILED)


cli.command()(option_flags.convert)


@cli.command()
def formats(
    source: Annotated[
        str | None,
        typer.Argument(metavar="[IN]", help="List the outputs of this format, and what they lose.", show_default=False),
    ] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="[OUT]", help="Show the steps and options of this conversion.", show_default=False),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the supported conversions."""
    from engine import UnsupportedConversion
    from engine.registry import load_registry
    from web.docs import catalogue

    registry = load_registry()
    try:
        if source is None:
            found = catalogue.formats_catalogue(registry)
            targets_of = found["by_input_format"].items()
            table = ("input", "outputs"), [(name, " ".join(targets)) for name, targets in targets_of]
        elif target is None:
            found = catalogue.targets(registry, source)
            outputs = found["outputs"]
            table = ("output", "losses"), [(one["output_format"], ", ".join(one["losses"])) for one in outputs]
        else:
            found = catalogue.conversion(registry, source, target)
            facts = [("steps", ", ".join(found["path"])), ("losses", ", ".join(found["losses"]))]
            options = found["options"]["properties"].items()
            table = ("", "description"), [*facts, *((name, option["description"]) for name, option in options)]
    except UnsupportedConversion as error:
        exit_with(str(error), WRONG_USAGE)
    if as_json:
        return print(json.dumps(found, indent=2))
    return print_table(*table)


@cli.command()
def tools(as_json: Json = False) -> None:
    """List the tools. Each is a command, too: convertd TOOL INPUT... -o OUTPUT."""
    from engine.registry import load_registry

    known = load_registry().tools.values()
    if as_json:
        return print(json.dumps([{"id": tool.name, "name": tool.title} for tool in known], indent=2))
    return print_table(("tool", "description"), ((tool.name, tool.summary) for tool in known))


@cli.command()
def man() -> None:
    """Print the manual page, which "man -l" shows, and which can be a file of a folder man1."""
    from web.cli.manual import manual

    print(manual(typer.main.get_command(cli), _version()), end="")


@cli.command()
def config(as_json: Json = False) -> None:
    """Show effective settings and their sources. Secrets are masked."""
    from config.settings import effective_settings

    settings = effective_settings(load_settings_or_exit())
    if as_json:
        values = {setting.name: {"value": setting.value, "source": setting.source} for setting in settings}
        return print(json.dumps(values, indent=2))
    rows = ((setting.name, setting.value, setting.source) for setting in settings)
    return print_table(("setting", "value", "source"), rows, fold=False)


@cli.command()
def doctor(as_json: Json = False) -> None:
    """Check the sandbox, the plugins and the system packages of this installation."""
    import asyncio

    from engine.registry import load_registry
    from engine.sandbox import advise

    registry = load_registry()
    settings = load_settings_or_exit()
    sandbox = asyncio.run(_examine_sandbox(settings))
    processes = _processes(registry, settings)
    if as_json:
        return print(json.dumps({**_installation(registry, sandbox), "processes": processes}, indent=2))
    rows = [
        *((f"sandbox layer: {name}", "active" if on else "unavailable") for name, on in sandbox.layers.items()),
        *((f"sandbox check: {name}", "passed" if passed else "failed") for name, passed in sandbox.checks.items()),
        ("sandbox", _sandbox_state(settings, sandbox)),
        *((f"to allow {name}", text) for name, text in advise(sandbox.missing).items() if settings.sandbox != "off"),
        ("process", f"of one account; at most {processes['jobs_per_process']} conversions, one at a time"),
        ("process of one conversion", f"from {', '.join(processes['isolated_inputs'])}"),
        ("process of one result", f"to {', '.join(processes['isolated_outputs'])}"),
        *((f"plugin: {plugin.name}", plugin.error or plugin.summary) for plugin in registry.plugins),
        *((f"missing: {one.name}", f"needed for {one.purpose}: {one.install}") for one in registry.missing),
    ]
    return print_table(("component", "state"), rows)


def _sandbox_state(settings: Settings, sandbox: SandboxReport) -> str:
    if settings.sandbox == "off":
        return "switched off by CONVERTD_SANDBOX=off: files of strangers can take over the machine's user"
    if sandbox.complete:
        return "complete, as CONVERTD_SANDBOX=required demands"
    return "incomplete: with CONVERTD_SANDBOX=best_effort, serve starts with a warning; with required, it does not"


def _installation(registry: Registry, sandbox: SandboxReport) -> dict[str, Any]:
    from engine.sandbox import advise

    return {
        "version": _version(),
        "sandbox": {
            "layers": sandbox.layers,
            "proofs": sandbox.checks,
            "complete": sandbox.complete,
            "advice": advise(sandbox.missing),
        },
        "plugins": [
            {
                "name": plugin.name,
                "summary": plugin.summary,
                "reads": [fmt.name for fmt in plugin.reads],
                "writes": [fmt.name for fmt in plugin.writes],
                "error": plugin.error,
            }
            for plugin in registry.plugins
        ],
        "missing": [asdict(requirement) for requirement in registry.missing],
        "pairs": len(registry.pairs()),
    }


def _processes(registry: Registry, settings: Settings) -> dict[str, Any]:
    """The number of jobs in a process, all of one account, and the formats whose jobs have a process of their own."""
    plans = registry.catalogue()
    shared = [plan for plan in plans if not plan.own_process]
    return {
        "jobs_per_process": settings.jobs_per_process,
        "isolated_inputs": sorted({plan.source.name for plan in plans} - {plan.source.name for plan in shared}),
        "isolated_outputs": sorted({plan.target.name for plan in plans} - {plan.target.name for plan in shared}),
    }


async def _examine_sandbox(settings: Settings) -> SandboxReport:
    """Returns the sandbox report, complete or not, with the sandbox layers of the settings."""
    from web.workers.executor_setup import local_executor

    executor = local_executor(settings, 1, modules=["engine.sandbox"])  # runs no conversion
    try:
        return await executor.examine()
    finally:
        await executor.close()
