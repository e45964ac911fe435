"""The dashboard's page of files: results of the last hours, with previews, to download, save as a ZIP, and delete."""

from types import MappingProxyType

from config.errors import PublicError
from engine.options import OptionValues
from web.api.errors import InvalidParameter, NotFound
from web.api.fields import FileListQuery
from web.http.downloads import send_archive, send_file, send_stored
from web.http.handler import cancelled_on_disconnect
from web.services.accounts.accounts import Account
from web.services.conversions.conversion_request import ConversionRequest, Upload
from web.services.files.files import archive_entries, result_of, stored_file
from web.site.dashboard import AccountPage, session_account, shown_errors
from web.site.pages import SIGN_IN_PATH, PageHandler

_PATH = f"{SIGN_IN_PATH}/files"
_SHOWN = 24  # files on a page
_ID = "file_"  # the names of the checkboxes of a form begin with it
_PREVIEW_FORMAT = "webp"
_PREVIEW_OPTIONS: OptionValues = MappingProxyType({"width": 160, "height": 160, "pages": "1", "effort": 1})


class FilesPage(AccountPage):
    """The results of the account."""

    async def show(self, account: Account) -> None:
        await _write_page(self, account, self.input.query_fields(FileListQuery).cursor)


class ChosenFiles(PageHandler):
    """Sends files as a ZIP, or deletes them."""

    access = "session"

    @cancelled_on_disconnect
    async def post(self, action: str) -> None:
        account, files = session_account(self), self.services.files
        async with shown_errors(self, account, _write_page):
            ids = [name for name in self.input.web_form() if name.startswith(_ID)]
            if not ids:
                raise InvalidParameter("Choose some files first.", reason="missing", param="files")
            if action == "zip":
                await send_archive(self, "files.zip", archive_entries(await files.find_all(account.id, ids)))
            else:
                for file_id in ids:
                    await files.delete(account.id, file_id)
                self.redirect(_PATH, status=303)


class FileDownload(PageHandler):
    """The result of a file."""

    access = "session"

    @cancelled_on_disconnect
    async def get(self, file_id: str) -> None:
        await send_stored(self, await self.services.files.find(session_account(self).id, file_id))


class FilePreview(PageHandler):
    """A small image of a result, or of its first page."""

    access = "session"

    @cancelled_on_disconnect
    async def get(self, file_id: str) -> None:
        services, account = self.services, session_account(self)
        file = await services.files.find(account.id, file_id)
        outcome, blob = result_of(file)
        fmt = services.registry.format(outcome.output_format)
        if outcome.container or fmt is None:
            raise NotFound("There is no preview of a ZIP.")
        await services.trials.count_preview(self.authorization.address, account)
        create = services.work_files.create
        with create(account.id) as source, create(account.id) as output:
            await services.files.load_input(blob, outcome.processed_size, source)
            upload = Upload(source, outcome.filename, outcome.processed_size, fmt)
            request = ConversionRequest(
                account=account, uploads=(upload,), target=_PREVIEW_FORMAT, options={**_PREVIEW_OPTIONS}
            )
            shown = await services.conversions.preview(request, output)
            self.set_header("Cache-Control", "private, max-age=86400, immutable")
            await send_file(self, output.blocks(), shown, inline=True)


async def _write_page(
    page: PageHandler, account: Account, cursor: str | None = None, error: PublicError | None = None
) -> None:
    found = await page.services.files.list_page(account.id, processed=True, limit=_SHOWN, cursor=cursor)
    files = [stored_file(file) for file in found.values]
    hours = round(account.tier.file_retention_seconds / 3600)
    page.write_page(
        "dashboard_files.html",
        error=error,
        files=files,
        unfinished=await page.unfinished_jobs(account),
        cursor=cursor,
        next_cursor=found.next_cursor,
        hours=hours,
    )
