"""The commands of `convertd jobs`: conversions that a server runs in the background.

Like all commands, they import what they need when they run.
"""

# ruff: noqa: PLC0415
from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from web.cli_output import FAILED, WRONG_USAGE, Json, exit_with, print_message, print_table

if TYPE_CHECKING:
    from convertd_client import Client, Job

JobId = Annotated[str, typer.Argument(metavar="JOB", help="The job's id.")]
Server = Annotated[str | None, typer.Option("--remote", metavar="URL", help="The server. The default is CONVERTD_URL.")]
Status = Annotated[
    str | None, typer.Option(help="Only jobs that are queued, processing, completed, failed or cancelled.")
]
Tag = Annotated[str | None, typer.Option(help="Only jobs with this tag.")]
Limit = Annotated[int, typer.Option(min=1, max=100, help="The number of jobs.")]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="Download the result to this file.")]

cli = typer.Typer(add_completion=False, help="Conversions that a server runs in the background.", no_args_is_help=True)


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
def wait(job_id: JobId, output: Output = None, server: Server = None) -> None:
    """Wait until a job has ended, and download its result."""
    with _client(server) as client:
        job = client.wait(job_id)
        if job.status != "completed" or job.result is None:
            exit_with(f"{job_id} is {job.status}: {_outcome(job)}", FAILED)
        if output is None:
            return print(job.result.get("file_id", job_id))
        if "file_id" not in job.result:
            exit_with("the results of a batch are downloaded one by one, or as an archive", WRONG_USAGE)
        try:
            client.download(job.result["file_id"], to=output)
        except OSError as error:
            exit_with(f"cannot write {output}: {error.strerror}", FAILED)


@cli.command()
def cancel(job_id: JobId, server: Server = None) -> None:
    """Cancel a job that waits or runs. One that has ended is deleted with its result."""
    with _client(server) as client:
        job = client.end_job(job_id)
        print_message(f"{job_id} is {'deleted' if job.deleted else job.status}.")


def _outcome(job: Job) -> str:
    """The file of a completed job, or why it has failed."""
    if job.error is not None:
        return f"{job.error.message} ({job.error.reason or job.error.code})"
    result = job.result or {}
    return str(result.get("filename") or result.get("successful", ""))


@contextmanager
def _client(server: str | None) -> Iterator[Client]:
    """A client of the server. Exits if the URL or the API key is missing or wrong, or a call fails."""
    from convertd_client import Client, ConvertdError

    if not os.environ.get("CONVERTD_API_KEY"):
        exit_with("set CONVERTD_API_KEY to your API key for the server.", WRONG_USAGE)
    try:
        with Client(server) as client:
            yield client
    except ValueError as error:
        exit_with(str(error), WRONG_USAGE)
    except ConvertdError as error:
        exit_with(error.message, FAILED)
