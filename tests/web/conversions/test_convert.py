"""POST /convert and the download of its results, and a server that is killed under load."""

import asyncio
import os
from pathlib import Path

import httpx
import pytest
from PIL import Image

from benchmarks.processes import ConvertdServer
from tests.support.executors.fake import RecordingExecutor
from tests.support.requests import http
from tests.support.results.conversions import opened
from tests.support.samples.forms import FILE, FORM, TARGET, conversion_request, form, image, part
from tests.support.samples.generated import sample, saved
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.load import Clients, charged, create_accounts, kill_with_its_processes, repeat

JSON = {"Accept": "application/json"}
_KILL_INTERVAL = 0.5  # seconds


def test_texts_name_their_encoding(server: Running) -> None:
    response = server.convert("Größe".encode(), "html", name="a.md")

    assert response.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "Größe" in response.text


def test_the_response_is_the_converted_file(server: Running) -> None:
    response = server.convert(image(), "png")
    assert response.status_code == 200
    assert response.headers["Content-Type"] == "image/png"
    assert response.headers["Content-Disposition"] == ("attachment; filename=\"photo.png\"; filename*=UTF-8''photo.png")
    assert response.headers["Content-Length"] == str(len(response.content))
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Credits-Remaining"].isdigit()
    assert opened(response.content).size == (64, 48)


def test_responses_name_the_warnings_of_the_result(server: Running) -> None:
    transparent = saved(Image.new("RGBA", (8, 8), (255, 0, 0, 128)), "PNG")
    response = server.convert(transparent, "jpeg")
    assert response.headers["X-Warnings"] == "alpha_flattened"
    assert "X-Warnings" in response.headers["Access-Control-Expose-Headers"]
    stored = server.convert(transparent, "jpeg", headers=JSON).json()["data"]
    downloaded = server.request("GET", f"/files/{stored['file_id']}/download")
    assert downloaded.headers["X-Warnings"] == "alpha_flattened"
    assert "X-Warnings" not in server.convert(image(), "webp").headers


def test_risky_formats_are_read_in_processes_of_their_kind(servers: Servers, data_dir: Path) -> None:
    executor = RecordingExecutor()
    with servers.running(data_dir, executor) as server:
        for source, target in (("png", "webp"), ("png", "pdf"), ("pdf", "png"), ("svg", "png"), ("jxr", "png")):
            assert server.convert(sample(source), target).status_code == 500
    assert [job.template for job in executor.jobs] == ["", "documents", "documents", "svg", ""]
    assert [job.own_process for job in executor.jobs] == [False, False, False, False, True]


def test_small_files_are_never_on_the_disk(servers: Servers, data_dir: Path) -> None:
    with servers.running(data_dir) as server:
        for folder in ("jobs", "blobs"):
            (data_dir / folder).rmdir()  # no file can be created there now
        before = set(data_dir.rglob("*"))
        small, large = image(), image("BMP", (1000, 1000))
        assert server.convert(small, "webp").status_code == 200
        assert set(data_dir.rglob("*")) == before
        assert server.convert(large, "webp").status_code == 500
    assert eventually(lambda: not server.work_files())


@pytest.mark.parametrize("headers", [{}, {"Accept": "application/json"}, {"Idempotency-Key": "key"}])
def test_large_files_leave_nothing(servers: Servers, data_dir: Path, headers: dict[str, str]) -> None:
    with servers.running(data_dir) as server:
        large = image("BMP", (1000, 1000))
        assert server.convert(large, "bmp", headers=headers).status_code == 200
        assert server.convert(b"no picture" * 200_000, "bmp").status_code == 400
        assert eventually(lambda: not server.work_files())
        assert list((data_dir / "jobs").iterdir()) == []


def test_a_large_result_is_complete(server: Running) -> None:
    large = saved(Image.frombytes("RGB", (1500, 1000), os.urandom(4_500_000)), "PNG")
    response = server.convert(large, "bmp")
    assert len(response.content) > 4_500_000
    assert opened(response.content).tobytes() == opened(large).tobytes()


def test_quality_reaches_the_encoder(server: Running) -> None:
    noise = saved(Image.frombytes("RGB", (200, 200), os.urandom(120_000)), "PNG")
    low, high = (server.convert(noise, "jpeg", quality=q) for q in ("10", "95"))
    assert len(low.content) < len(high.content) / 2


@pytest.mark.parametrize("name", ["JPG", "jpeg", "Jpeg"])
def test_formats_have_aliases_in_any_case(server: Running, name: str) -> None:
    assert server.convert(image("PNG"), name).headers["Content-Type"] == "image/jpeg"


def test_the_content_decides_the_type(server: Running) -> None:
    response = server.convert(image("PNG"), "webp", name="really.jpg", headers=JSON)
    assert response.json()["data"]["input_format"] == "png"


def test_the_json_response_describes_the_result(server: Running) -> None:
    content = image()
    response = server.convert(content, "TIF", headers=JSON)
    body = response.json()
    assert response.status_code == 200
    left = int(response.headers["X-Credits-Remaining"])
    assert body["meta"] == {"request_id": response.headers["X-Request-Id"], "credits_remaining": left}
    data = body["data"]
    file_id, size = data["file_id"], data["processed_size"]
    assert data == data | {
        "file_id": file_id,
        "original_name": "photo.jpg",
        "filename": "photo.tiff",
        "media_type": "image/tiff",
        "input_format": "jpeg",
        "output_format": "tiff",
        "original_size": len(content),
        "processed_size": size,
        "reduction_percent": round((1 - size / len(content)) * 100, 1),
        "download_url": f"/api/v1/files/{file_id}/download",
        "processing_time_ms": data["processing_time_ms"],
        "warnings": [],
        "container": None,
        "file_count": 1,
        "quality_used": None,
    }
    downloaded = http.get(f"{server.url}{data['download_url']}", headers=server.auth)
    assert len(downloaded.content) == size
    assert opened(downloaded.content).format == "TIFF"
    assert "photo.tif" in downloaded.headers["Content-Disposition"]
    assert http.head(f"{server.url}{data['download_url']}", headers=server.auth).headers["Content-Length"] == str(size)


@pytest.mark.parametrize("file_id", ["file_0", "..%2f..%2fsecret", "file_%00", "%ff"])
def test_unknown_results_are_refused(server: Running, file_id: str) -> None:
    response = http.get(f"{server.api}/files/{file_id}/download", headers=server.auth)
    assert response.json()["error"]["code"] in {"not_found", "invalid_parameter"}


async def test_many_at_once(server: Running) -> None:
    async with http.AsyncClient(timeout=60) as client:

        async def one() -> httpx.Response:
            return await client.post(
                f"{server.api}/convert", content=form(FILE, TARGET), headers={**FORM, **server.auth}
            )

        answers = await asyncio.gather(*(one() for _ in range(12)))
    assert [response.status_code for response in answers] == [200] * 12
    assert len({response.headers["X-Request-Id"] for response in answers}) == 12


def test_a_disconnect_during_the_download_removes_files(server: Running) -> None:
    body = form(part(image("BMP", (3000, 2000)), 'name="file"; filename="a.bmp"'), part(b"bmp", 'name="output_format"'))
    with server.connect() as connection:
        connection.sendall(conversion_request(server.posting, body))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
        assert server.work_files()
        assert not any(name.startswith("/memfd:") for name in server.work_files())
    assert eventually(lambda: not server.work_files())


@pytest.mark.slow
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgresql", marks=pytest.mark.long)], indirect=True)
def test_each_response_is_charged_once(tmp_path: Path, url: str, request: pytest.FixtureRequest) -> None:
    """The server is killed in the middle of conversions, ends with all its processes, and starts again.

    That is repeated as often as `--rounds`.
    """
    rounds = int(request.config.getoption("--rounds"))
    (key,) = create_accounts(url, 1)
    with ConvertdServer(tmp_path, {"CONVERTD_DATABASE_URL": url}) as server:
        clients = Clients(server.api, key, (64, 48))

        def kill_and_start() -> None:
            kill_with_its_processes(server)
            server.start()

        async def convert_during_kills() -> None:
            kills = asyncio.create_task(repeat(rounds, _KILL_INTERVAL, kill_and_start))
            await clients.convert_while(kills, concurrency=4)

        asyncio.run(convert_during_kills())
        spent = charged(url)
    assert clients.statuses[0] > 0
    assert set(clients.statuses) <= {0, 200, 409, 429, 500, 503}
    assert clients.wrong_results == 0
    assert spent == clients.succeeded > 0
