"""Calls of the Python client for stored files, batches, several results, presets and jobs."""

import io
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from PIL import Image

import convertd_client
from convertd_client import NotFound
from tests.support.requests import http
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from tests.support.servers.receiver import Receiver, reply

OUTPUTS = ({"output_format": "webp", "width": 16, "name": "small"}, {"output_format": "png"})


def _format(content: bytes) -> str | None:
    with Image.open(io.BytesIO(content)) as image:
        return image.format


def test_upload_then_convert(client: Any, folder: Path) -> None:
    stored = client.upload(folder / "photo.heic", name="mine.heic")
    made = client.convert_file(stored.file_id, "png")
    known = client.file(stored.file_id)

    assert (stored.original_name, stored.status) == ("mine.heic", "pending")
    assert (known.status, known.output_format) == ("processed", "png")
    assert _format(client.download(made.file_id).content) == "PNG"
    assert client.download(made.file_id, to=folder / "a.png").path.read_bytes()[:4] == b"\x89PNG"
    client.delete_file(stored.file_id)
    with pytest.raises(convertd_client.NotFound):
        client.download(made.file_id, to=folder / "b.png")
    assert not (folder / "b.png").exists()


def test_links_and_lists_of_files(client: Any, server: Running, folder: Path) -> None:
    first, second = (client.convert_file(client.upload(folder / "photo.heic").file_id, "png") for _ in range(2))
    page = client.files(status="processed", limit=1)
    rest = client.files(status="processed", cursor=page.next_cursor)
    assert {file.file_id for file in (*page.files, *rest.files)} == {first.file_id, second.file_id}
    assert rest.next_cursor is None
    link = client.link(first.file_id, expires_in=60)
    assert link.expires_at < page.files[0].expires_at
    path = link.url.partition("/api/v1/")[2]
    assert _format(http.get(f"{server.api}/{path}").content) == "PNG"
    saved = client.download_files([first.file_id, second.file_id], to=folder / "both.zip")
    assert ZipFile(saved.path).namelist() == ["photo.png", "photo (2).png"]


def test_files_of_other_servers(client: Any) -> None:
    with Receiver(reply(200, sample("pdf")), "127.0.0.2") as place:
        url = f"{place.url}/page.pdf"
        assert _format(client.convert(None, "png", url=url).content) == "PNG"
        assert client.inspect(None, "png", url=url).input_format == "pdf"
        assert client.upload(url=url).original_name == "page.pdf"
        assert client.add_to_batch(client.create_batch("png").batch_id, url=url).input_format == "pdf"
        assert client.tool("pdf-rotate", url=url, angle=90).page_count == 1
        assert client.tool("pdf-merge", urls=[url, url]).page_count == 2
        place.respond = reply(404)
        with pytest.raises(convertd_client.InvalidParameter) as error:
            client.convert(None, "png", url=url)
        assert (error.value.reason, error.value.details) == ("http_status", {"status": 404})


def test_batches(client: Any, folder: Path) -> None:
    batch = client.create_batch("jpeg")
    good = client.add_to_batch(batch.batch_id, folder / "photo.heic")
    bad = client.add_to_batch(batch.batch_id, folder / "bad.png")
    result = client.convert_batch(batch.batch_id, [bad.file_id, good.file_id], "jpeg", quality=70)

    assert (result.successful, result.failed) == (1, 1)
    assert result.results[0].error.code == "processing_failed"
    assert client.batch(batch.batch_id).status == "partial"
    assert _format(client.download(result.results[1].result_file_id).content) == "JPEG"
    assert ZipFile(io.BytesIO(client.download_batch(batch.batch_id).content)).namelist() == ["photo.jpg"]


def test_several_results(client: Any, folder: Path) -> None:
    made = client.convert(folder / "photo.heic", outputs=OUTPUTS, filename="{name}-{width}")
    with ZipFile(io.BytesIO(made.content)) as archive:
        assert archive.namelist() == [one.filename for one in made.outputs]
    first = made.outputs[0]
    assert (first.output_format, first.width, first.filename) == ("webp", 16, "small-16.webp")
    planned = client.inspect(folder / "photo.heic", outputs=OUTPUTS)
    assert planned.credits == 2


def test_presets(client: Any, folder: Path) -> None:
    kept = client.put_preset("thumbs", "webp", width=16, filename="thumb")
    assert (kept.name, kept.fields["output_format"]) == ("thumbs", "webp")
    assert client.preset("thumbs") == kept
    assert client.presets() == (kept,)
    assert client.convert(folder / "photo.heic", preset="thumbs").filename == "thumb.webp"
    file_id = client.upload(folder / "photo.heic").file_id
    assert client.convert_file(file_id, preset="thumbs").width == 16
    client.delete_preset("thumbs")
    with pytest.raises(convertd_client.NotFound):
        client.preset("thumbs")


def test_the_smallest_of_several_formats(client: Any, folder: Path) -> None:
    assert client.convert(folder / "photo.heic", "auto", formats="bmp,png").output_format == "png"


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
