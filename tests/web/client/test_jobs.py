"""Jobs by both clients: submitted, waited for, listed, cancelled and deleted."""

from pathlib import Path
from typing import Any

import pytest

from convertd_client import NotFound
from tests.support.requests.clients import KINDS, calling
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running


@pytest.fixture(params=KINDS)
def client(request: pytest.FixtureRequest, server: Running) -> Any:
    with calling(request.param, server.url, server.account(20)) as opened:
        yield opened


def test_a_submitted_file_is_downloaded(client: Any, tmp_path: Path) -> None:
    job = client.submit(sample("png"), "webp", name="photo.png", tag="mine", quality=50)
    assert (job.tag, job.operation, job.finished_at) == ("mine", "convert", None)
    ended = client.wait(job.job_id)
    assert (ended.status, ended.result["filename"], ended.error) == ("completed", "photo.webp", None)
    assert client.job(job.job_id).result == ended.result
    client.download(ended.result["file_id"], to=tmp_path / "photo.webp")
    assert (tmp_path / "photo.webp").stat().st_size == ended.result["processed_size"]
    assert [found.job_id for found in client.jobs(tag="mine", status="completed", limit=5).jobs] == [job.job_id]
    assert client.jobs(tag="other").jobs == ()


def test_tools_and_batches_are_submitted(client: Any) -> None:
    job = client.submit_tool("pdf-merge", [sample("pdf"), sample("pdf")], tag="tool")
    assert client.wait(job.job_id, 60).result["filename"] == "merged.pdf"
    batch = client.create_batch("png")
    file = client.add_to_batch(batch.batch_id, sample("png"), name="a.png")
    job = client.submit_batch(batch.batch_id, [file.file_id, "file_unknown"], "webp", tag="batch", quality=30)
    ended = client.wait(job.job_id)
    assert (ended.progress, ended.result["successful"], ended.result["failed"]) == (1.0, 1, 1)


def test_an_ended_job_is_deleted(client: Any) -> None:
    job = client.wait(client.submit(sample("png"), "webp").job_id)
    assert client.end_job(job.job_id).deleted
    with pytest.raises(NotFound):
        client.job(job.job_id)
    with pytest.raises(NotFound):
        client.download(job.result["file_id"])
