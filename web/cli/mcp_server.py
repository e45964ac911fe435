"""Serves agents over standard input and output, with conversions in worker processes of this machine or on a server."""

import base64
import tempfile
from pathlib import Path
from typing import Any

from engine.executor import LocalExecutor
from engine.lazy import lazy_imports
from engine.registry import Registry, load_registry
from web.agents.calls import MAX_RETURNED, AgentError, Call, Files, Source
from web.agents.protocol import serve_stdio
from web.agents.tools import AgentTools
from web.cli.conversion_arguments import ConversionTask
from web.cli.local import convert_task, dry_run_task, make_plans
from web.cli.output import FAILED, WRONG_USAGE, exit_with, load_settings_or_exit
from web.cli.results import CommandResult
from web.docs.catalogue import conversion, formats_catalogue
from web.workers.executor_setup import SandboxIncomplete, check_sandbox, local_executor

with lazy_imports():  # these need the package of the client
    from web.agents import remote as remote_backend
    from web.cli import remote


async def serve_locally(folder: Path) -> None:
    """Serves an agent that uses the files of a folder."""
    settings = load_settings_or_exit()
    registry = load_registry()
    executor = local_executor(settings, settings.workers)
    try:
        if settings.sandbox == "required":
            await check_sandbox(settings, executor)
        await serve_stdio(AgentTools(registry, LocalBackend(registry, executor), Files(folder), served=False))
    except SandboxIncomplete as error:
        exit_with(str(error), FAILED)
    finally:
        await executor.close()


async def serve_remotely(folder: Path, server: str) -> None:
    """Serves an agent that uses the files of a folder, and converts them by the API of a server."""
    try:
        client = remote.open_client(server)
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)
    async with client:
        await serve_stdio(AgentTools(load_registry(), remote_backend.RemoteBackend(client), Files(folder), served=True))


class LocalBackend:
    """Worker processes of this machine. Nothing is charged, and there are no jobs."""

    def __init__(self, registry: Registry, executor: LocalExecutor) -> None:
        self._registry = registry
        self._executor = executor

    async def run(self, call: Call) -> dict[str, Any]:
        """Runs a conversion or a tool, or inspects a file. A result without an output is returned, in Base64."""
        with tempfile.TemporaryDirectory(prefix="convertd-") as folder:
            result = await self._run(call, Path(folder))
            if result.error is not None:
                raise AgentError(result.error.code, result.error.message, reason=result.error.reason)
            values = result.as_json()
            if call.output is None and not call.dry_run:
                values["files"] = _returned(values.pop("outputs"))
            return values

    async def _run(self, call: Call, folder: Path) -> CommandResult:
        target = self._registry.tools[call.tool].target if call.tool else self._registry.format(call.target)
        if target is None:
            message = f"{call.target} is not a known format; list_formats lists them."
            raise AgentError("unsupported_conversion", message, param="output_format")
        inputs = tuple(_path(source, folder / f"input-{number}") for number, source in enumerate(call.sources))
        additional = [
            (name, _path(source, folder / f"further-{number}")) for number, (name, source) in enumerate(call.additional)
        ]
        name = call.sources[0].name or "result"
        output = call.output or folder / "out" / f"{Path(name).stem}.{target.extensions[0]}"
        task = ConversionTask(
            inputs,
            label=name,
            name=name,
            output=output,
            target=target,
            overwrite=call.overwrite,
            tool=call.tool,
            files=additional,
        )
        planned = make_plans(self._registry, task, call.options)
        return await (dry_run_task if call.dry_run else convert_task)(self._executor, task, planned, call.options)

    async def formats(self, source: str | None, target: str | None) -> dict[str, Any]:
        """Returns the output formats of all input formats or of one, or the options of a pair."""
        if source and target:
            return conversion(self._registry, source, target)
        by_input = formats_catalogue(self._registry)["by_input_format"]
        return {"by_input_format": {name: found for name, found in by_input.items() if source in (None, name)}}

    async def job(self, job_id: str, _wait: int) -> dict[str, Any]:
        """Raises AgentError: calls respond when they have ended."""
        message = f"There is no job {job_id}: conversions on this machine have ended when they respond."
        raise AgentError("not_found", message)

    async def account(self) -> dict[str, Any]:
        """Returns that there is no account."""
        return {"account": None, "message": "Conversions on this machine are free, and need no account."}


def _path(source: Source, place: Path) -> Path:
    """The path of a file of a call, whose content is written to `place` if it has no path."""
    if source.path is not None:
        return source.path
    place.write_bytes(source.data or b"")
    return place


def _returned(outputs: list[str]) -> list[dict[str, str]]:
    """The names of results and their contents, in Base64. Raises AgentError if they are too large for a response."""
    paths = [Path(output) for output in outputs]
    if sum(path.stat().st_size for path in paths) > MAX_RETURNED:
        raise AgentError("file_too_large", f"The result has more than {MAX_RETURNED} bytes; use output_path.")
    return [{"name": path.name, "data": base64.b64encode(path.read_bytes()).decode()} for path in paths]
