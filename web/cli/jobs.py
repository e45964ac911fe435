"""The commands of `convertd jobs`: conversions that a server runs in the background."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from convertd_client import Client, ConvertdError, Job
from web.cli.login import find_key
from web.cli.output import FAILED, WRONG_USAGE, Json, exit_with, print_message, print_table

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
JobIds = Annotated[list[str], typer.Argument(metavar="JOB...", help="Ids of jobs.")]
Server = Annotated[str | None, typer.Option("--remote", metavar="URL", help="The server. The default is CONVERTD_URL.")]
Status = Annotated[
    str | None, typer.Option(help="Only jobs that are queued, processing, completed, failed or cancelled.")
]
Tag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
Limit = Annotated[int, typer.Option(min=1, max=100, help="The number of jobs.")]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", help="Download the result, or a ZIP of several, to this file.")
]

cli = typer.Typer(add_completion=False, no_args_is_help=True)


@cli.command("list")
def list_jobs(
    status: Status = None, tag: Tag = None, limit: Limit = 50, server: Server = None, as_json: Json = False
) -> None:
    """List jobs, newest first."""
    with _client(server) as client:
        found = client.jobs(status=status, tag=tag, limit=limit).jobs
    if as_json:
        return print(json.dumps([asdict(job) for job in found], indent=2))
    rows = ((job.job_id, job.status, job.operation, job.tag, job.created_at, _outcome(job)) for job in found)
    return print_table(("job", "status", "operation", "tag", "created", "result"), rows)


@cli.command()
def show(job_id: JobId, server: Server = None) -> None:
    """Print a job as JSON."""
    with _client(server) as client:
        print(json.dumps(asdict(client.job(job_id)), indent=2))


@cli.command()
def wait(job_ids: JobIds, output: Output = None, server: Server = None) -> None:
    """Wait until jobs have ended, and download the result, or the results of several jobs as a ZIP."""
    with _client(server) as client:
        ended = [client.wait(job_id) for job_id in job_ids]
        done = [job for job in ended if job.status == "completed" and job.result is not None]
        for job in ended:
            if job not in done:
                print_message(f"{job.job_id} is {job.status}: {_outcome(job)}")
        if output is None:
            for job in done:
                print((job.result or {}).get("file_id", job.job_id))
        elif done:
            _download(client, done, output, as_zip=len(ended) > 1)
        if len(done) < len(ended):
            raise typer.Exit(FAILED)


@cli.command()
def cancel(job_id: JobId, server: Server = None) -> None:
    """Cancel a job that waits or runs, or delete a job that has ended, with its result."""
    with _client(server) as client:
        job = client.end_job(job_id)
        print_message(f"{job_id} is {'deleted' if job.deleted else job.status}.")


def _download(client: Client, jobs: list[Job], output: Path, *, as_zip: bool) -> None:
    """Downloads the results of completed jobs. Exits if they are not files, or the output cannot be written."""
    files = [str((job.result or {}).get("file_id", "")) for job in jobs]
    if not all(files):
        exit_with("the results of a batch are downloaded one by one, or as an archive", WRONG_USAGE)
    try:
        if as_zip:
            client.download_files(files, to=output)
        else:
            client.download(files[0], to=output)
    except OSError as error:
        exit_with(f"cannot write {output}: {error.strerror}", FAILED)


def _outcome(job: Job) -> str:
    """The file of a completed job, or why it has failed."""
    if job.error is not None:
        return f"{job.error.message} ({job.error.reason or job.error.code})"
    result = job.result or {}
    return str(result.get("filename") or result.get("successful", ""))


@contextmanager
def _client(server: str | None) -> Iterator[Client]:
    """A client of the server. Exits if the URL or the API key is missing or wrong, or a call fails."""
    try:
        with Client(server, find_key(server)) as client:
            yield client
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)
    except ConvertdError as error:
        exit_with(error.message, FAILED)
