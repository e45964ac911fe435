"""`convertd mcp`: tools for agents over standard input and output, which convert here or on a server."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer

from config.settings import Settings
from engine.executor import LocalExecutor
from engine.lazy import lazy_imports
from engine.registry import Registry, load_registry
from web.agents.calls import MAX_RETURNED, AgentError, Call, Files, load
from web.agents.tools import AgentTools
from web.cli.conversion_arguments import ConversionTask
from web.cli.local import convert_task, dry_run_task, make_plans
from web.cli.output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit
from web.cli.results import CommandResult
from web.docs.catalogue import conversion, formats_catalogue
from web.workers.executor_setup import SandboxIncomplete, check_sandbox, local_executor

with lazy_imports():
    from web.agents import remote as remote_agents
    from web.cli import remote

cli = typer.Typer(add_completion=False)


@cli.command()
def mcp(
    root: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder whose files agents may use. Default: this one.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--remote", metavar="URL", help="Convert on this server, with CONVERTD_API_KEY.")
    ] = None,
) -> None:
    """Agents start this command themselves.

    Files outside of DIR are refused, also where symbolic links lead to them.
    """
    folder = (root or Path()).absolute()
    if not folder.is_dir():
        exit_with(f"{folder} is not a folder.", WRONG_USAGE)
    try:
        protocol = load("web.agents.protocol")
    except AgentError as error:
        exit_with(str(error), FAILED)

    settings, registry = load_settings_or_exit(), load_registry()
    if server is None:
        asyncio.run(_serve_locally(protocol, settings, registry, folder))
    else:
        asyncio.run(_serve_remotely(protocol, registry, folder, server))


async def _serve_locally(protocol: Any, settings: Settings, registry: Registry, folder: Path) -> None:
    executor = local_executor(settings, settings.workers)
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        await protocol.serve_stdio(_tools(registry, LocalBackend(registry, executor), folder, served=False))
    except SandboxIncomplete as error:
        exit_with(str(error), FAILED)
    finally:
        await executor.close()


async def _serve_remotely(protocol: Any, registry: Registry, folder: Path, server: str) -> None:
    try:
        client = remote.open_client(server)
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)
    async with client:
        await protocol.serve_stdio(_tools(registry, remote_agents.RemoteBackend(client), folder, served=True))


def _tools(registry: Registry, backend: Any, folder: Path, *, served: bool) -> AgentTools:
    return AgentTools(registry, backend, Files(folder), served=served)


class LocalBackend:
    """Worker processes of this machine. Nothing is charged, and there are no jobs."""

    def __init__(self, registry: Registry, executor: LocalExecutor) -> None:
        self._registry = registry
        self._executor = executor

    async def run(self, call: Call) -> dict[str, Any]:
        """Runs a conversion or a tool, or inspects a file. A result without an output is returned, in Base64."""
        with tempfile.TemporaryDirectory(prefix="convertd-") as folder:
            result = await self._run(call, Path(folder))
            values = _described(result)
            if call.output is None and not call.dry_run:
                values["files"] = _returned(values.pop("outputs"))
            return values

    async def _run(self, call: Call, folder: Path) -> CommandResult:
        target = self._registry.format(call.target)
        if target is None:
            message = f"{call.target} is not a known format; list_formats lists them."
            raise AgentError("unsupported_conversion", message, param="output_format")
        inputs = tuple(_path(source, folder / f"input-{number}") for number, source in enumerate(call.sources))
        additional = {name: _path(source, folder / f"further-{name}") for name, source in call.additional.items()}
        name = call.sources[0].name or "result"
        output = call.output or folder / "out" / f"{Path(name).stem}.{target.extensions[0]}"
        task = ConversionTask(inputs, name, name, None, output, target, call.overwrite, call.tool, additional)
        planned = make_plans(self._registry, task, call.options)
        return await (dry_run_task if call.dry_run else convert_task)(self._executor, task, planned, call.options)

    async def formats(self, source: str | None, target: str | None) -> dict[str, Any]:
        """Returns the output formats of all input formats or of one, or the options of a pair."""
        if source and target:
            return conversion(self._registry, source, target)
        by_input = formats_catalogue(self._registry)["by_input_format"]
        return {"by_input_format": {name: found for name, found in by_input.items() if source in (None, name)}}

    async def job(self, job_id: str, wait: int) -> dict[str, Any]:
        """Raises AgentError: calls respond when they have ended."""
        del wait
        raise AgentError(
            "not_found", f"There is no job {job_id}: conversions on this machine have ended when they respond."
        )

    async def account(self) -> dict[str, Any]:
        """Returns that there is no account."""
        return {"account": None, "message": "Conversions on this machine are free, and need no account."}


def _path(source: Any, place: Path) -> Path:
    """The path of a file of a call, whose content is written to `place` if it has no path."""
    if source.path is not None:
        return Path(source.path)
    place.write_bytes(source.data)
    return place


def _described(result: CommandResult) -> dict[str, Any]:
    """The result as JSON values. Raises AgentError if the task failed."""
    if result.error is not None:
        raise AgentError(result.error.code, result.error.message, reason=result.error.reason)
    return result.as_json()


def _returned(outputs: list[str]) -> list[dict[str, str]]:
    """The names of results and their contents, in Base64. Raises AgentError if they are too large for a response."""
    paths = [Path(output) for output in outputs]
    if sum(path.stat().st_size for path in paths) > MAX_RETURNED:
        raise AgentError("file_too_large", f"The result has more than {MAX_RETURNED} bytes; use output_path.")
    return [{"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()} for path in paths]
