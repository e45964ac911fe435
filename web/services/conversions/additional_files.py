"""Stored files that options of a request name by their ids, such as a watermark."""

from collections.abc import AsyncIterator, Container, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace

from engine.options import OptionValues
from engine.registry import Registry
from storage.errors import NotFound
from storage.tables.files import File
from web.api.errors import InvalidParameter
from web.services.conversions.conversion_plan import of_output, own_file
from web.services.conversions.conversion_request import ConversionRequest
from web.services.files.files import Files
from web.services.files.work_files import WorkFiles


class AdditionalFiles:
    """Finds the files of options by their ids, and adds them to requests."""

    def __init__(self, files: Files, work_files: WorkFiles, registry: Registry) -> None:
        self._files = files
        self._work_files = work_files
        self._options = registry.options

    async def find(self, request: ConversionRequest) -> Mapping[str, File]:
        """Returns the files by the names of the options, without those that the request has itself.

        With several outputs, whose options include the options of the request, `own_file` makes the names. Raises
        InvalidParameter if the account has no such file.
        """
        account_id = request.account.id
        options = request.options
        found = await self._find(account_id, options, request.file_names)
        if not request.outputs:
            return found
        found = {own_file(name, options[name]): file for name, file in found.items()}
        for index, one in enumerate(request.outputs):
            own = {name: value for name, value in one.options.items() if options.get(name) != value}
            with of_output(index):
                files = await self._find(account_id, own)
            found |= {own_file(name, own[name]): file for name, file in files.items()}
        return found

    async def _find(self, account_id: str, options: OptionValues, sent: Container[str] = ()) -> dict[str, File]:
        found: dict[str, File] = {}
        for name, value in options.items():
            option = self._options.get(name)
            if name in sent or option is None or option.file is None or not option.is_file(value):
                continue
            try:
                found[name] = await self._files.find(account_id, str(value))
            except NotFound:
                expected = [*option.file.names, "the file_id of a stored file"]
                message = f"{name} must be {' or '.join(expected)}."
                raise InvalidParameter(message, reason="no_file", param=name) from None
        return found

    @asynccontextmanager
    async def with_named_files(self, request: ConversionRequest) -> AsyncIterator[ConversionRequest]:
        """Yields the request with copies of these files, which exist during the block.

        Raises InvalidParameter as `find` does, and RateLimited and NoSpace without space for them.
        """
        found = {} if request.tool else await self.find(request)
        with ExitStack() as stack:
            copies = []
            for file in found.values():
                copy = stack.enter_context(self._work_files.create(request.account.tenant.id))
                copies.append(replace(await self._files.working_copy(file, copy), fetched=True))
            yield request.with_additional(dict(zip(found, copies, strict=True)))
