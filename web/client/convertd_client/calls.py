"""All calls of the API, as coroutines."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

from convertd_client import schema, transfers
from convertd_client.job_calls import JobCalls
from convertd_client.parameters import ToolOption, as_form, files_of_tool, quoted, split_fields
from convertd_client.schema import ConvertOptions
from convertd_client.transfers import FilePath, PartialDownload, Progress, Source
from convertd_client.transport import ConvertdError


@dataclass(frozen=True)
class Download:
    """A downloaded file, in `content` or in the file at `path`. `size` is in bytes."""

    size: int
    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Result(schema.ConversionResult):
    """The result of a conversion, downloaded to `content` or `path` unless the source is a stored file."""

    content: bytes = field(default=b"", repr=False)
    path: Path | None = None


@dataclass(frozen=True, kw_only=True)
class FileResult(schema.BatchEntry):
    """The result of one file of `convert_many`: the file `path` is written, or `error` is set."""

    source: Path
    path: Path | None = None


class Calls(JobCalls):
    """All calls of the API. The coroutines never suspend if the transport blocks."""

    async def close(self) -> None:
        """Closes the connections."""
        await self._api.close()

    async def convert(
        self,
        /,
        source: Source | None,
        target: str | None = None,
        *,
        url: str | None = None,
        to: FilePath | None = None,
        overwrite: bool = False,
        name: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[ConvertOptions],
    ) -> Result:
        """Converts a file. Writes the result to the file `to`, or returns it as `content`.

        The options `outputs` and `preset` can determine the result, instead of the target. Without a source, the
        server fetches the file from the `url`. `name` replaces the filename of the source. `conversion` returns the
        options of a pair of formats; paths, bytes and open files are sent as files. If the result is a ZIP archive, the
        file has the suffix .zip. Raises OSError before the request if the file cannot be written, FileExistsError if it
        exists and `overwrite` is not set.
        """
        fields = {**options, "output_format": target, "url": url}
        return await self._convert("/convert", _file(source), fields, to, overwrite, name, progress)

    async def inspect(
        self,
        /,
        source: Source | None,
        target: str | None = None,
        *,
        url: str | None = None,
        name: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[ConvertOptions],
    ) -> schema.Inspection:
        """Identifies a file and returns what its conversion would do. Converts nothing, and costs nothing."""
        texts, files = split_fields({**options, "output_format": target, "url": url})
        with transfers.open_form(texts, [*_file(source), *files], name, progress) as form:
            return await self._api.call(schema.Inspection, "POST", "/convert/inspect", files=form)

    async def tool(
        self,
        /,
        tool: str,
        files: Source | Sequence[Source] = (),
        *,
        to: FilePath | None = None,
        overwrite: bool = False,
        name: str | None = None,
        progress: Progress | None = None,
        **options: ToolOption,
    ) -> Result:
        """Runs a tool on a file, or on a sequence of files. `tools` returns the tools with their options.

        Without files, the server fetches the file from the option `url`, or several from `urls`. The other arguments
        are as in `convert`; `name` replaces the filename of the first file.
        """
        sent = files_of_tool(files)
        return await self._convert(f"/tools/{quoted(tool)}", sent, options, to, overwrite, name, progress)

    async def merge_pdfs(self, /, sources: Sequence[Source], **options: Any) -> Result:
        """Merges 2 to 20 PDFs into one, in their order. Further arguments are as in `tool`, such as `to`."""
        return await self.tool("pdf-merge", sources, **options)

    async def delete_pages(self, /, source: Source, pages: str | Sequence[int], **options: Any) -> Result:
        """Removes pages from a PDF. Pages count from 1: [2, 5] or "2,5,8-10". Further arguments are as in `tool`."""
        listed = pages if isinstance(pages, str) else ",".join(map(str, pages))
        return await self.tool("pdf-delete-pages", source, pages=listed, **options)

    async def upload(
        self,
        source: Source | None = None,
        *,
        url: str | None = None,
        name: str | None = None,
        progress: Progress | None = None,
    ) -> schema.StoredFile:
        """Stores a file for later conversions: one that is uploaded, or that the server fetches from the `url`."""
        return await self._store("/files/upload", source, url, name, progress)

    async def file(self, file_id: str) -> schema.StoredFile:
        """Returns a stored file's properties."""
        return await self._api.call(schema.StoredFile, "GET", f"/files/{quoted(file_id)}")

    async def files(self, *, status: str | None = None, limit: int = 50, cursor: str | None = None) -> schema.FileList:
        """Returns stored files, newest first. The `next_cursor` of the result is the `cursor` of further ones."""
        params = as_form(status=status, limit=limit, cursor=cursor)
        return await self._api.call(schema.FileList, "GET", "/files", params=params)

    async def convert_file(
        self, /, file_id: str, target: str | None = None, **options: Unpack[ConvertOptions]
    ) -> Result:
        """Converts a stored file. `download` fetches the result."""
        body = {**options, "output_format": target}
        return await self._api.call(Result, "POST", f"/files/{quoted(file_id)}/convert", json=body, idempotent=True)

    async def download(
        self, file_id: str, *, to: FilePath | None = None, overwrite: bool = False, progress: Progress | None = None
    ) -> Download:
        """Downloads a result. Resumes after a lost connection. Writes the file at `to` only when it is complete."""
        with transfers.open_download(to, overwrite=overwrite, progress=progress) as download:
            await self._fetch(file_id, download)
            return Download(download.size, download.content, download.path)

    async def download_files(
        self,
        file_ids: Sequence[str],
        *,
        to: FilePath | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
    ) -> Download:
        """Downloads the results of up to 1000 files as one ZIP."""
        with transfers.open_download(to, overwrite=overwrite, progress=progress) as download:
            await self._api.send("POST", "/files/zip", json={"file_ids": [*file_ids]}, download=download)
            return Download(download.size, download.content, download.path)

    async def put_preset(
        self, name: str, target: str | None = None, **options: Unpack[ConvertOptions]
    ) -> schema.Preset:
        """Keeps options under a name, which the option `preset` of conversions uses."""
        body = {**options, "output_format": target}
        return await self._api.call(schema.Preset, "PUT", f"/presets/{quoted(name)}", json=body)

    async def preset(self, name: str) -> schema.Preset:
        """Returns a preset."""
        return await self._api.call(schema.Preset, "GET", f"/presets/{quoted(name)}")

    async def presets(self) -> tuple[schema.Preset, ...]:
        """Returns all presets."""
        return await self._api.call(tuple[schema.Preset, ...], "GET", "/presets", member="presets")

    async def delete_preset(self, name: str) -> None:
        """Deletes a preset."""
        await self._api.send("DELETE", f"/presets/{quoted(name)}")

    async def link(self, file_id: str, *, expires_in: int = 3600) -> schema.Link:
        """Returns a link to a result that needs no API key, for some seconds or until the file is deleted."""
        path = f"/files/{quoted(file_id)}/links"
        return await self._api.call(schema.Link, "POST", path, json={"expires_in": expires_in})

    async def delete_file(self, file_id: str) -> None:
        """Deletes a stored file and its results."""
        await self._api.send("DELETE", f"/files/{quoted(file_id)}")

    async def create_batch(self, target: str) -> schema.Batch:
        """Creates an empty batch."""
        return await self._api.call(schema.Batch, "POST", "/batch", json={"output_format": target})

    async def add_to_batch(
        self,
        batch_id: str,
        source: Source | None = None,
        *,
        url: str | None = None,
        name: str | None = None,
        progress: Progress | None = None,
    ) -> schema.StoredFile:
        """Adds a file to a batch: one that is uploaded, or that the server fetches from the `url`."""
        return await self._store(f"/batch/{quoted(batch_id)}/files", source, url, name, progress)

    async def convert_batch(
        self, /, batch_id: str, file_ids: Sequence[str], target: str | None = None, **options: Unpack[ConvertOptions]
    ) -> schema.BatchResult:
        """Converts files of a batch in parallel, with the same options. A failed file does not affect the others."""
        path = f"/batch/{quoted(batch_id)}/convert"
        body = {**options, "file_ids": [*file_ids], "output_format": target}
        return await self._api.call(schema.BatchResult, "POST", path, json=body, idempotent=True)

    async def batch(self, batch_id: str) -> schema.Batch:
        """Returns a batch and its files."""
        return await self._api.call(schema.Batch, "GET", f"/batch/{quoted(batch_id)}")

    async def download_batch(
        self, batch_id: str, *, to: FilePath | None = None, overwrite: bool = False, progress: Progress | None = None
    ) -> Download:
        """Downloads the results of a batch as one ZIP."""
        with transfers.open_download(to, overwrite=overwrite, progress=progress) as download:
            await self._api.send("GET", f"/batch/{quoted(batch_id)}/download", download=download)
            return Download(download.size, download.content, download.path)

    def convert_many(
        self,
        /,
        paths: Sequence[FilePath],
        target: str,
        *,
        folder: FilePath | None = None,
        overwrite: bool = False,
        progress: Progress | None = None,
        **options: Unpack[ConvertOptions],
    ) -> AsyncGenerator[FileResult, None]:
        """Converts files in one or more batches. Writes the results to `folder`, or next to their sources.

        Yields the result of each file as it arrives, not in the order of the paths. A file that cannot be read,
        converted or written does not affect the others. Raises ValueError if two results would have the same path, or
        one would overwrite its source.
        """
        outputs = transfers.output_paths([Path(path) for path in paths], target, folder)
        return self._convert_many(outputs, target, options, overwrite=overwrite, progress=progress)

    async def formats(self) -> schema.Formats:
        """Returns all supported conversions."""
        return await self._api.call(schema.Formats, "GET", "/formats")

    async def conversion(self, input_format: str, output_format: str) -> schema.Conversion:
        """Returns the steps and the options of a conversion."""
        path = f"/formats/{quoted(input_format)}/{quoted(output_format)}"
        return await self._api.call(schema.Conversion, "GET", path)

    async def tools(self) -> tuple[schema.Tool, ...]:
        """Returns the operations of the server, with the descriptions of their options."""
        return await self._api.call(tuple[schema.Tool, ...], "GET", "/tools", member=_described_tools)

    async def account(self) -> schema.Account:
        """Returns the account of the API key."""
        return await self._api.call(schema.Account, "GET", "/account")

    async def usage(self, period: str | None = None) -> schema.Usage:
        """Returns the usage of a month (YYYY-MM) or since a day (YYYY-MM-DD). The default is the current month."""
        return await self._api.call(schema.Usage, "GET", "/account/usage", params=as_form(period=period))

    async def keys(self) -> tuple[schema.Key, ...]:
        """Returns the account's active API keys."""
        return await self._api.call(tuple[schema.Key, ...], "GET", "/account/keys", member="keys")

    async def create_key(self, name: str | None = None) -> schema.NewKey:
        """Creates an API key."""
        return await self._api.call(schema.NewKey, "POST", "/account/keys", json=as_form(name=name), repeatable=False)

    async def rotate_key(self, key_id: str, *, grace_period_seconds: int = 86_400) -> schema.NewKey:
        """Replaces an API key. The old key keeps working for the grace period."""
        path, body = f"/account/keys/{quoted(key_id)}/rotate", {"grace_period_seconds": grace_period_seconds}
        return await self._api.call(schema.NewKey, "POST", path, json=body, repeatable=False)

    async def revoke_key(self, key_id: str) -> None:
        """Revokes an API key."""
        await self._api.send("DELETE", f"/account/keys/{quoted(key_id)}")

    async def purchase(self, pack: str, *, language: str = "en") -> schema.Purchase:
        """Opens a checkout for a pack of credits: starter, pro or business."""
        body = {"pack": pack, "language": language}
        return await self._api.call(schema.Purchase, "POST", "/credits/purchase", json=body, idempotent=True)

    async def register(self, email: str, name: str) -> schema.Registration:
        """Registers an account and sends a verification email. Needs no API key."""
        body = {"email": email, "name": name}
        return await self._api.call(schema.Registration, "POST", "/register", json=body, repeatable=False)

    async def verify(self, token: str) -> schema.NewKey:
        """Exchanges the token from the email's link for an API key. Needs no API key."""
        return await self._api.call(schema.NewKey, "GET", "/verify", params={"token": token}, repeatable=False)

    async def _convert(
        self,
        path: str,
        files: Sequence[tuple[str, Source]],
        fields: Mapping[str, object],
        to: FilePath | None,
        overwrite: bool,
        name: str | None,
        progress: Progress | None,
    ) -> Result:
        # Asks for JSON and downloads the result separately: only the download of a stored result can be resumed.
        with transfers.open_download(to, overwrite=overwrite, progress=progress) as download:
            texts, additional = split_fields(fields)
            with transfers.open_form(texts, [*files, *additional], name, progress) as form:
                result = await self._api.call(Result, "POST", path, files=form, idempotent=True)
            try:
                await self._fetch(result.file_id, download, result.container)
            except ConvertdError as error:
                error.details["file_id"] = result.file_id
                raise
            return replace(result, content=download.content, path=download.path)

    async def _fetch(self, file_id: str, download: PartialDownload, container: str | None = None) -> None:
        if container == "zip" and download.path is not None:
            download.path = download.path.with_suffix(".zip")
        await self._api.send("GET", f"/files/{quoted(file_id)}/download", download=download)

    async def _store(
        self, path: str, source: Source | None, url: str | None, name: str | None, progress: Progress | None
    ) -> schema.StoredFile:
        with transfers.open_form(as_form(url=url), _file(source), name, progress) as form:
            return await self._api.call(schema.StoredFile, "POST", path, files=form)

    async def _convert_many(
        self,
        outputs: Mapping[Path, Path],
        target: str,
        options: ConvertOptions,
        *,
        overwrite: bool,
        progress: Progress | None,
    ) -> AsyncGenerator[FileResult, None]:
        pending = list[Path]()
        for path, output in outputs.items():
            try:
                transfers.check_access(path, output, overwrite=overwrite)
                pending.append(path)
            except OSError as error:
                yield _failure(path, error)
        while pending:
            batch, uploaded = await self.create_batch(target), dict[str, Path]()
            for path in pending[: batch.max_files]:
                try:
                    uploaded[(await self.add_to_batch(batch.batch_id, path, progress=progress)).file_id] = path
                except (schema.InvalidFileType, schema.FileTooLarge, OSError) as error:
                    yield _failure(path, error)
            pending = pending[len(pending[: batch.max_files]) :]
            result = await self.convert_batch(batch.batch_id, [*uploaded], target, **options) if uploaded else None
            for entry in result.results if result else ():
                source = uploaded[entry.file_id]
                yield await self._save(entry, source, outputs[source], overwrite=overwrite, progress=progress)

    async def _save(
        self, entry: schema.BatchEntry, source: Path, output: Path, *, overwrite: bool, progress: Progress | None
    ) -> FileResult:
        result = FileResult(**vars(entry), source=source)
        if entry.error is not None:
            return result
        try:
            with transfers.open_download(output, overwrite=overwrite, progress=progress) as download:
                await self._fetch(entry.result_file_id or entry.file_id, download, entry.container)
        except (ConvertdError, OSError) as error:
            return replace(result, error=_file_error(error))
        return replace(result, path=download.path)


def _failure(source: Path, error: ConvertdError | OSError) -> FileResult:
    return FileResult(file_id="", status="failed", source=source, error=_file_error(error))


def _file_error(error: ConvertdError | OSError) -> schema.FileError:
    if isinstance(error, OSError):
        message = f"{error.filename}: {error.strerror}"
        return schema.FileError(code="file_not_accessible", message=message, retryable=False)
    return schema.FileError(code=error.code, message=error.message, reason=error.reason, retryable=error.retryable)


def _file(source: Source | None) -> list[tuple[str, Source]]:
    return [] if source is None else [("file", source)]


def _described_tools(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools of a response, which has the descriptions of their options beside them."""
    described = data["options"]
    return [
        {**tool, "options": [described[option.get("ref", option["name"])] for option in tool["options"]]}
        for tool in data["tools"]
    ]
