"""The Python client against a real server: all calls of both clients."""

import io
import os
import pickle
import tracemalloc
from pathlib import Path
from typing import Any, BinaryIO, cast
from zipfile import ZipFile

import pytest
from PIL import Image

import convertd_client
from convertd_client import Client, ConnectionFailed, ConvertdError
from tests.support.requests.clients import KINDS, calling
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document
from tests.support.servers.in_process import Running
from tests.support.servers.mail_server import token_sent_to
from web.api.errors import STATUS

_MB = 1 << 20


def _format(content: bytes) -> str | None:
    with Image.open(io.BytesIO(content)) as image:
        return image.format


class _Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_where: int) -> int:
        raise io.UnsupportedOperation


@pytest.mark.parametrize("source", ["path", "text", "bytes", "file", "pipe"])
def test_convert_accepts_every_kind_of_source(client: Any, folder: Path, source: str) -> None:
    path = folder / "photo.heic"
    with path.open("rb") as file:
        forms: dict[str, Any] = {"path": path, "text": str(path), "bytes": path.read_bytes(), "file": file}
        made = client.convert(forms.get(source) or _Unseekable(path.read_bytes()), "webp", quality=50)

    assert (made.input_format, made.output_format) == ("heic", "webp")
    assert _format(made.content) == "WEBP"
    assert (len(made.content), made.path) == (made.processed_size, None)
    assert made.request_id.startswith("req_")
    assert made.credits_remaining == client.account().credits_remaining == 20


def test_convert_to_a_file_reports_progress(client: Any, folder: Path) -> None:
    calls: list[tuple[str, int, int | None]] = []

    made = client.convert(
        folder / "photo.heic", "tiff", to=folder / "out.tiff", quality=5, progress=lambda *now: calls.append(now)
    )

    assert [warned.code for warned in made.warnings] == ["quality_ignored"]
    assert made.path.stat().st_size == made.processed_size
    assert made.content == b""
    size = (folder / "photo.heic").stat().st_size
    assert ("upload", size, size) in calls
    assert calls[-1] == ("download", made.processed_size, made.processed_size)
    assert not list(folder.glob(".*"))


def test_options_are_keyword_arguments(client: Any, folder: Path) -> None:
    declared = client.conversion("heic", "jpg")
    flags = {name: True for name, schema in declared.options["properties"].items() if schema["type"] == "boolean"}
    small = client.convert(folder / "photo.heic", "jpeg", quality=5, width=20, password=None, **flags)
    large = client.convert(folder / "photo.heic", "jpeg", quality=95)

    assert (declared.input_format, declared.output_format, declared.credits) == ("heic", "jpeg", 1)
    assert declared.path[0].startswith("heic -> ")
    assert declared.options["properties"]["quality"]["maximum"] == 100
    assert (small.warnings, small.container) == ((), None)
    assert small.processed_size < large.processed_size
    with pytest.raises(convertd_client.UnsupportedConversion):
        client.conversion("heic", "nef")


def test_an_inspection_converts_nothing(client: Any, folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    found = client.inspect(folder / "pages.pdf", "jpg", quality=50)

    assert (found.input_format, found.output_format, found.pages, found.credits) == ("pdf", "jpeg", 1, 1)
    assert [warning.code for warning in found.warnings] == ["pages_dropped"]
    assert found.width > 0
    assert found.height > 0
    assert found.path[0].startswith("pdf -> ")
    assert set(found.losses) == {"structure", "detail"}
    assert found.options["quality"] == 50
    assert client.account().credits_used_total == 0


def test_several_pages_are_saved_as_a_zip_file(client: Any, folder: Path) -> None:
    (folder / "pages.pdf").write_bytes(document("pages", 3))

    made = client.convert(folder / "pages.pdf", "png", to=folder / "pages.png", pages="all")
    assert (made.container, made.file_count, made.path) == ("zip", 3, folder / "pages.zip")
    assert ZipFile(made.path).namelist() == ["pages-01.png", "pages-02.png", "pages-03.png"]
    (entry,) = client.convert_many([folder / "pages.pdf"], "gif", pages="1-2", overwrite=True)
    assert (entry.container, entry.path) == ("zip", folder / "pages.zip")
    assert ZipFile(entry.path).namelist() == ["pages-01.gif", "pages-02.gif"]
    (entry,) = client.convert_many([folder / "pages.pdf"], "tiff", pages="1-2")
    assert (entry.container, entry.path) == (None, folder / "pages.tiff")


def test_options_of_stored_files_and_batches(client: Any, folder: Path) -> None:
    batch = client.create_batch("png")
    stored = client.add_to_batch(batch.batch_id, folder / "photo.heic")

    made = client.convert_file(client.upload(folder / "photo.heic").file_id, "png", quality=5)
    (entry,) = client.convert_batch(batch.batch_id, [stored.file_id], "png", quality=5).results
    (other,) = client.convert_many([folder / "photo.heic"], "png", quality=5)

    for result in (made, entry, other):
        assert [warned.code for warned in result.warnings] == ["quality_ignored"]


def test_unknown_options_name_the_nearest(client: Any) -> None:
    with pytest.raises(convertd_client.InvalidParameter) as caught:
        client.convert(sample("png"), "jpeg", qualty=80)

    assert (caught.value.param, caught.value.reason) == ("qualty", "unknown_parameter")
    assert caught.value.details["available"][0] == "quality"
    assert client.account().credits_used_total == 0


def test_convert_many(client: Any, folder: Path) -> None:
    (folder / "out").mkdir()
    (folder / "kept.jpg").write_bytes(sample("jpeg"))
    (folder / "out" / "kept.webp").write_bytes(b"precious")
    names = ["bad.png", "photo.heic", "text.png", "page.pdf", "missing.png", "kept.jpg"]

    entries = [*client.convert_many([folder / name for name in names], "webp", folder=folder / "out")]

    assert {entry.source.name: entry.error and entry.error.code for entry in entries} == {
        "bad.png": "processing_failed",
        "photo.heic": None,
        "text.png": "invalid_file_type",
        "page.pdf": None,
        "missing.png": "file_not_accessible",
        "kept.jpg": "file_not_accessible",
    }
    assert [entry.source.name for entry in entries[:3]] == ["missing.png", "kept.jpg", "text.png"]  # known first
    assert {path.name for path in (folder / "out").iterdir()} == {"photo.webp", "page.webp", "kept.webp"}
    assert (folder / "out" / "kept.webp").read_bytes() == b"precious"
    assert client.account().credits_remaining == 19


def test_convert_many_refuses_conflicting_results(client: Any, folder: Path) -> None:
    (folder / "photo.png").write_bytes(sample("png"))

    for names, target in ([["photo.heic", "photo.png"], "webp"], [["photo.png"], "png"]):
        with pytest.raises(ValueError, match=r".*".join(names)):
            client.convert_many([folder / name for name in names], target)


def test_the_target_is_checked_before_the_request(client: Any, folder: Path) -> None:
    for to, error in (("page.pdf", FileExistsError), ("missing/a.webp", FileNotFoundError), (".", IsADirectoryError)):
        with pytest.raises(error):
            client.convert(folder / "photo.heic", "webp", to=folder / to)

    assert client.account().credits_used_total == 0
    assert client.convert(folder / "photo.heic", "webp", to=folder / "page.pdf", overwrite=True).path.stat().st_size > 0


@pytest.mark.parametrize("kind", KINDS)
def test_convert_many_uses_several_batches(kind: str, servers: Any, tmp_path: Path) -> None:
    paths = [tmp_path / f"{index}.png" for index in range(5)]
    for path in paths:
        path.write_bytes(sample("png"))
    with (
        servers.running(tmp_path / "data", max_batch_files=2) as server,
        calling(kind, server.url, server.key) as client,
    ):
        entries = [*client.convert_many(paths, "gif")]

    assert [entry.path.name for entry in entries] == [f"{index}.gif" for index in range(5)]


def test_pdf_tools(client: Any, folder: Path) -> None:
    page = folder / "page.pdf"

    merged = client.merge_pdfs([page, page.read_bytes(), page], to=folder / "merged.pdf")
    less = client.delete_pages(folder / "merged.pdf", [1, 3])

    assert (merged.file_count, merged.page_count) == (3, 3)
    assert (less.page_count, less.deleted_pages) == (1, (1, 3))
    assert less.content.startswith(b"%PDF")
    assert client.tool("pdf-delete-pages", folder / "merged.pdf", pages="1-2", password=None).page_count == 1
    with pytest.raises(convertd_client.NotFound):
        client.tool("pdf-fold", page)


def test_formats_tools_and_usage(client: Any, folder: Path) -> None:
    client.convert(folder / "photo.heic", "png")
    account, usage, formats = client.account(), client.usage(), client.formats()

    assert (account.tier, account.credits_total_purchased) == ("paid", 1)
    assert account.rate_limit.limit == 10_000
    assert (usage.successful_conversions, usage.by_conversion[0].output_format) == (1, "png")
    assert usage.by_day[0].conversions == 1
    assert client.usage(account.created_at[:7]).period == account.created_at[:7]
    assert len(formats.conversions) == formats.total
    assert "png" in formats.by_input_format["heic"]
    tools = {tool.id: {option.name: option for option in tool.options} for tool in client.tools()}
    assert {"pdf-merge", "pdf-delete-pages"} <= {*tools}
    assert (tools["pdf-rotate"]["angle"].type, tools["pdf-rotate"]["angle"].required) == ("integer", True)
    assert [tools[name]["pages"].required for name in ("pdf-rotate", "pdf-delete-pages")] == [False, True]


def test_keys(client: Any) -> None:
    (first,) = client.keys()
    made = client.create_key("Second")
    turned = client.rotate_key(made.key_id, grace_period_seconds=0)

    assert (made.name, made.api_key[:9]) == ("Second", "cvd_live_")
    both = client.keys()
    assert {key.key_id for key in both} == {first.key_id, turned.key_id}
    assert turned.api_key not in repr(turned)
    client.revoke_key(turned.key_id)
    (left,) = client.keys()
    assert left.key_id == first.key_id


def test_register_and_verify(server: Running) -> None:
    with Client(server.url) as client:
        registration = client.register("someone-new@example.com", "An app")
        key = client.verify(token_sent_to(server, "someone-new@example.com"))

    assert registration.verification_sent
    with Client(server.url, key.api_key) as known:
        assert known.account().credits_remaining == 50


@pytest.mark.parametrize(
    ("code", "credits", "arguments"),
    [
        ("unsupported_conversion", 1, {"target": "nef"}),
        ("invalid_parameter", 1, {"target": "png", "quality": 101}),
        ("no_credits", 0, {"target": "png"}),
    ],
)
def test_error_classes(server: Running, code: str, credits: int, arguments: dict[str, Any]) -> None:
    with Client(server.url, server.account(credits)) as client, pytest.raises(ConvertdError) as caught:
        client.convert(sample("png"), **arguments)

    error = caught.value
    assert (type(error).code, error.code, error.status) == (code, code, STATUS[code])
    assert (str(error.request_id)[:4], error.retryable) == ("req_", False)
    assert error.details
    again = pickle.loads(pickle.dumps(error))
    assert (again.code, again.details, str(again)) == (error.code, error.details, str(error))


def test_wrong_or_unverified_key(server: Running) -> None:
    with Client(server.url, "cvd_live_wrong") as client, pytest.raises(convertd_client.InvalidApiKey):
        client.account()
    with Client(server.url, server.account(verified=False)) as client, pytest.raises(convertd_client.KeyNotVerified):
        client.account()


def test_file_above_the_size_limit(server: Running) -> None:
    with Client(server.url, server.account()) as client, pytest.raises(convertd_client.FileTooLarge) as caught:
        client.upload(bytes(11 * _MB))

    assert caught.value.details == {"max_file_size": 10 * _MB}


def test_url_and_key_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVERTD_URL", "https://example.com/api/v1/")
    monkeypatch.setenv("CONVERTD_API_KEY", "cvd_live_secret")
    with Client() as client:
        assert repr(client) == "Client('https://example.com/api/v1')"
        assert "secret" not in repr(vars(client))
    with Client("http://localhost:1") as client:
        assert client.base_url == "http://localhost:1/api/v1"


@pytest.mark.parametrize(("url", "key"), [("example.com", "k"), ("ftp://example.com", "k"), ("http://h", "a\nb")])
def test_invalid_url_or_key(url: str, key: str) -> None:
    with pytest.raises(ValueError, match=r"^The (address|API key)") as caught:
        Client(url, key)
    assert "a\nb" not in str(caught.value)


def test_connection_refused() -> None:
    with (
        Client("http://127.0.0.1:1", "k", retries=1, backoff=0.01) as client,
        pytest.raises(ConnectionFailed) as caught,
    ):
        client.formats()

    assert caught.value.status == 0


class _Zeros(io.RawIOBase):
    """A file of zeros of any size that needs no memory."""

    def __init__(self, size: int) -> None:
        self._size, self._at = size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), self._size - self._at)
        buffer[:count] = bytes(count)
        self._at += count
        return count


def test_purchase(client: Any, server: Running) -> None:
    made = client.purchase("pro", language="de")

    assert (made.pack, made.credits, made.amount, made.currency) == ("pro", 2_000, 15_00, "eur")
    assert (made.language, made.status) == ("de", "open")
    assert made.checkout_url.endswith(f"/checkout/{made.session_id}")
    with pytest.raises(convertd_client.InvalidParameter) as refused:
        client.purchase("huge")
    assert (refused.value.param, refused.value.reason) == ("pack", "unknown")


def test_large_uploads_need_little_memory(client: Any) -> None:
    tracemalloc.start()
    with pytest.raises(convertd_client.InvalidFileType):
        client.upload(cast(BinaryIO, _Zeros(90 * _MB)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert peak < 20 * _MB
