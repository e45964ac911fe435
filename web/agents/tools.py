"""The tools that agents call, with schemas from the declarations of plugins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine import ConversionError, FileFormat
from engine.conversions import AnyTool
from engine.options import Option, validate_options
from engine.registry import Registry
from web.agents.arguments import (
    PATHS,
    SERVED,
    ConvertArguments,
    FileArguments,
    FormatsArguments,
    InspectArguments,
    OptionsArguments,
    SubmitArguments,
    ToolArguments,
    schema_of,
)
from web.agents.calls import AgentError, Backend, Call, Files, Source, decode
from web.api.errors import ApiError
from web.api.field_types import RequestModel, check_known, validate

_CONVERT = (
    "Convert a file into another format. The response has the place of the result, and warnings of losses. Without "
    "options, the file stays as it is, as far as the format can hold it. Frequent options: width, height, fit, crop, "
    "rotate, quality, max_bytes (at most so many), metadata, background, watermark; pages, dpi and password of PDFs."
)
_INSPECT = (
    "Find out what a conversion would do: the format of the file, the steps, what is lost, the size of the result in "
    "pixels, and all options with their values. Converts nothing, and is free."
)
_FORMATS = "List all input and output formats, or the output formats of an input format."
_OPTIONS = "Describe all options of a conversion, with its steps and losses, or those of a tool, with its files."
_RUN_TOOL = "Run a tool on whole files. The tools, with the names of their options:"
_GENERAL = frozenset({"sanitize", "filename"})  # options of most tools
_JOB = "Get a job, which converts a file in the background, or its result."
_ACCOUNT = "Get the account that pays for conversions, with its credits and limits."


@dataclass(frozen=True)
class AgentTool:
    """A tool: `run` takes valid arguments. One that changes nothing is `read_only`."""

    name: str
    description: str
    arguments: type[RequestModel]
    run: Callable[[Any], Awaitable[dict[str, Any]]]
    read_only: bool = False


class AgentTools:
    """The tools by name. Agents use files below the root of `files`; `served` is whether a server converts them."""

    def __init__(self, registry: Registry, backend: Backend, files: Files, *, served: bool) -> None:
        self._registry = registry
        self._backend = backend
        self._files = files
        self._without = (frozenset() if files.root else PATHS) | (frozenset() if served else SERVED)
        listed = (_describe(tool, registry.tool_options(tool.name)) for tool in registry.tools.values())
        tools = (
            AgentTool("convert", _CONVERT, ConvertArguments, self._convert),
            AgentTool("run_tool", "\n".join([_RUN_TOOL, *listed]), ToolArguments, self._run_tool),
            AgentTool("inspect", _INSPECT, InspectArguments, self._inspect, read_only=True),
            AgentTool("list_formats", _FORMATS, FormatsArguments, self._formats, read_only=True),
            AgentTool("describe_options", _OPTIONS, OptionsArguments, self._describe_options, read_only=True),
            AgentTool("get_job", _JOB, SubmitArguments, self._job, read_only=True),
            AgentTool("account", _ACCOUNT, RequestModel, self._account, read_only=True),
        )
        self.tools = {tool.name: tool for tool in tools}

    def schema(self, tool: AgentTool) -> dict[str, Any]:
        """The JSON Schema of the arguments of a tool."""
        return schema_of(tool.arguments, self._without)

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Calls a tool. Raises AgentError."""
        tool = self.tools.get(name)
        if tool is None:
            raise AgentError("not_found", f"There is no tool {name}.", details={"available": sorted(self.tools)})
        try:
            check_known(arguments, self.schema(tool)["properties"])
            return await tool.run(validate(tool.arguments, arguments))
        except (ConversionError, ApiError) as error:
            details = error.details or None
            raise AgentError(error.code, str(error), reason=error.reason, param=error.param, details=details) from error

    async def _convert(self, given: ConvertArguments) -> dict[str, Any]:
        named = given.output_format or Path(given.output_path or "").suffix.removeprefix(".")
        if not named:
            message = "Give output_format, or an output_path with an extension."
            raise AgentError("invalid_parameter", message, reason="missing", param="output_format")
        target, call = self._call(given, named)
        output = self._place(given, call.sources[0], target.extensions[0] if target else call.target)
        return await self._backend.run(replace(call, output=output, overwrite=given.overwrite, background=given.as_job))

    async def _inspect(self, given: InspectArguments) -> dict[str, Any]:
        _, call = self._call(given, given.output_format)
        return await self._backend.run(replace(call, dry_run=True))

    def _call(self, given: FileArguments, name: str) -> tuple[FileFormat | None, Call]:
        """The output format, if it is known, and the call of a conversion to it."""
        target = self._registry.format(name)
        sources = self._sources(given, 1)
        known = self._registry.options
        valid = validate_options(known, given.options)
        paths = [name for name, value in valid.items() if self._files.root is not None and known[name].is_file(value)]
        additional = [(name, self._additional(name, str(valid.pop(name)))) for name in paths]
        return target, Call(sources, target.name if target else name, valid, additional=additional)

    async def _run_tool(self, given: ToolArguments) -> dict[str, Any]:
        tool = self._tool(given.tool)
        if tool.stages_parameter is None:
            check_known(given.files, tool.files)
        sources = self._sources(given, tool.inputs[-1])
        call = Call(
            sources,
            tool.target.name,
            validate_options(self._registry.tool_options(tool.name), given.options),
            tool=tool.name,
            additional=[
                (name, self._additional(name, value))
                for name, values in given.files.items()
                for value in ([values] if isinstance(values, str) else values)
            ],
            output=self._place(given, sources[0], tool.target.extensions[0], f"-{tool.name}"),
            overwrite=given.overwrite,
            background=given.as_job,
        )
        return await self._backend.run(call)

    def _tool(self, name: str) -> AnyTool:
        if name not in self._registry.tools:
            raise AgentError("not_found", f"There is no tool {name}.", param="tool")
        return self._registry.tools[name]

    async def _formats(self, given: FormatsArguments) -> dict[str, Any]:
        found = (await self._backend.formats(self._format_name(given.input_format), None))["by_input_format"]
        if given.input_format:
            return {"by_input_format": found}
        targets = {target for targets in found.values() for target in targets}
        return {"input_formats": [*found], "output_formats": sorted(targets)}

    async def _describe_options(self, given: OptionsArguments) -> dict[str, Any]:
        if given.tool is not None:
            tool, options = self._tool(given.tool), self._registry.tool_options(given.tool)
            files = {name: file.description for name, file in tool.files.items()}
            return {"options": {name: option.schema for name, option in options.items()}, "files": files}
        if not given.input_format or not given.output_format:
            message = "Give input_format and output_format, or tool."
            raise AgentError("invalid_parameter", message, reason="missing", param="output_format")
        formats = (self._format_name(name) for name in (given.input_format, given.output_format))
        return await self._backend.formats(*formats)

    def _format_name(self, name: str | None) -> str | None:
        """The name of the format for one of its names or extensions; unknown ones as they are."""
        return name and getattr(self._registry.format(name), "name", name)

    async def _job(self, given: SubmitArguments) -> dict[str, Any]:
        return await self._backend.job(given.job_id, given.wait)

    async def _account(self, _given: RequestModel) -> dict[str, Any]:
        return await self._backend.account()

    def _sources(self, given: FileArguments, most: int) -> tuple[Source, ...]:
        """The files of a call, at most as many. Raises AgentError."""
        several = given if isinstance(given, ToolArguments) else ToolArguments(tool="")
        paths = _listed(several.paths, given.path)
        contents = _listed(several.contents, given.data)
        urls = _listed(several.urls, given.url)
        names = " or ".join(name for name in ("path", "data", "url") if name not in self._without)
        if sum(map(bool, (paths, contents, urls))) != 1:
            raise AgentError("invalid_parameter", f"The file must be given by either {names}.", reason="exclusive")
        found = [Source(path.name, path=path) for path in map(self._file, paths)]
        found += [Source(given.name or "", data=decode(content)) for content in contents]
        found += [Source(url=url) for url in urls]
        if len(found) > most:
            raise AgentError("invalid_parameter", f"Give at most {most} files.", reason="out_of_range")
        return tuple(found)

    def _additional(self, name: str, value: str) -> Source:
        if value.startswith("data:"):
            return Source(name, data=decode(value.removeprefix("data:"), name))
        path = self._file(value)
        return Source(path.name, path=path)

    def _file(self, path: str) -> Path:
        found = self._files.find(path)
        if not found.is_file():
            raise AgentError("file_error", f"{path} is not a file.")
        return found

    def _place(
        self, given: ConvertArguments | ToolArguments, source: Source, extension: str, suffix: str = ""
    ) -> Path | None:
        """Where the result is written: at `output_path`, or next to the first file; None without either."""
        if given.output_path is not None:
            output = self._files.find(given.output_path)
        elif source.path is not None and not given.as_job:
            output = source.path.with_name(f"{source.path.stem}{suffix}.{extension}")
        else:
            return None
        if given.as_job:
            raise AgentError("invalid_parameter", "A job stores its result; it has no output_path.", param="as_job")
        if output.exists() and not given.overwrite:
            raise AgentError("file_error", f"{output} exists; set overwrite to replace it.")
        if not output.parent.is_dir():
            raise AgentError("file_error", f"{output.parent} is not a folder.")
        return output


def _listed(several: Sequence[str] | None, single: str | None) -> list[str]:
    return [*(several or ()), *([] if single is None else [single])]


def _describe(tool: AnyTool, options: Mapping[str, Option]) -> str:
    """A line about a tool: what it does, and the names of its options and files; required ones have an asterisk."""
    named = [f"{name}*" if option.required else name for name, option in options.items() if name not in _GENERAL]
    named += [f"{name}*" if file.minimum else name for name, file in tool.files.items()]
    return f"{tool.name}: {tool.title} ({', '.join(named)})" if named else f"{tool.name}: {tool.title}"
