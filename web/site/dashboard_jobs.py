"""The dashboard's page of jobs: their states, errors and results, with forms to cancel and delete them."""

from config.errors import PublicError
from web.api.errors import NotFound
from web.api.fields import JobListQuery
from web.api.schemas.jobs import describe_job
from web.handlers.downloads import send_batch
from web.http.downloads import send_stored
from web.http.handler import cancelled_on_disconnect
from web.services.accounts.accounts import Account
from web.site.dashboard import AccountPage, session_account, shown_errors
from web.site.pages import SIGN_IN_PATH, PageHandler

_PATH = f"{SIGN_IN_PATH}/jobs"
_SHOWN = 25  # jobs on a page


class JobsPage(AccountPage):
    """The jobs of the account."""

    async def show(self, account: Account) -> None:
        await _write_page(self, account, self.input.query_fields(JobListQuery).cursor)


class EndForm(PageHandler):
    """Cancels a job, or deletes one that has ended with its result."""

    access = "session"

    async def post(self, job_id: str, action: str) -> None:
        account, jobs = session_account(self), self.services.jobs
        async with shown_errors(self, account, _write_page):
            await (jobs.cancel if action == "cancel" else jobs.delete)(account, job_id)
            self.redirect(_PATH, status=303)


class ResultDownload(PageHandler):
    """The result of a job: a file, or the files of a batch as a ZIP."""

    access = "session"

    @cancelled_on_disconnect
    async def get(self, job_id: str) -> None:
        account = session_account(self).id
        job = describe_job(await self.services.jobs.find(account, job_id))
        if job["result"] is None:
            raise NotFound("The job has no result.")
        if job["operation"] == "batch":
            return await send_batch(self, account, job["result"]["batch_id"])
        return await send_stored(self, await self.services.files.find(account, job["result"]["file_id"]))


async def _write_page(
    page: PageHandler, account: Account, cursor: str | None = None, error: PublicError | None = None
) -> None:
    found = await page.services.jobs.list_page(account.id, limit=_SHOWN, cursor=cursor, status=None, tag=None)
    jobs = [{**describe_job(job), "accepted": job.created_at} for job in found.values]
    page.write_page("dashboard_jobs.html", error=error, jobs=jobs, cursor=cursor, next_cursor=found.next_cursor)
