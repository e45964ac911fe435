"""POST /pdf/merge, /pdf/delete-pages and /pdf/compress."""

import io
from typing import Any

import httpx
import pikepdf
import pytest
from pikepdf import Name

from storage.tables import ledger_audit
from tests.support.requests.checks import problem
from tests.support.samples.forms import image
from tests.support.samples.pdf_documents import saved
from tests.support.samples.pdf_images import PHOTO, flate, image_document, images
from tests.support.servers.in_process import Running

JSON = {"Accept": "application/json"}


def document(pages: int, width: int = 100, **save: Any) -> bytes:
    """A PDF whose pages differ in height: the first is 201 points high."""
    made = pikepdf.new()
    for number in range(pages):
        made.add_blank_page(page_size=(width, 201 + number))
    return saved(made, **save)


def heights(content: bytes, password: str = "") -> list[int]:
    with pikepdf.open(io.BytesIO(content), password=password) as opened:
        return [int(page.mediabox[3]) - 200 for page in opened.pages]


def merge(server: Running, *documents: bytes, field: str = "files[]", **request: Any) -> httpx.Response:
    files = [(field, (f"{place}.pdf", content)) for place, content in enumerate(documents)]
    return server.request("POST", "/pdf/merge", files=files, **request)


def delete(server: Running, content: bytes, pages: str | None, **request: Any) -> httpx.Response:
    data = {**request.pop("data", {}), **({} if pages is None else {"pages": pages})}
    return server.request("POST", "/pdf/delete-pages", files={"file": ("my.pdf", content)}, data=data, **request)


def test_documents_are_merged_in_order(either: Running) -> None:
    key = either.account(credits=2)
    response = merge(either, document(2), document(1), document(3), key=key)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/pdf")
    assert 'filename="merged.pdf"' in response.headers["Content-Disposition"]
    assert response.headers["X-Credits-Remaining"] == "1"
    assert heights(response.content) == [1, 2, 1, 1, 2, 3]
    assert either.database.run_blocking(ledger_audit.check) == ()


def test_files_may_be_numbered(server: Running) -> None:
    files = [(f"files[{place}]", ("a.pdf", document(pages))) for place, pages in enumerate((2, 1))]
    assert heights(server.request("POST", "/pdf/merge", files=files).content) == [1, 2, 1]


def test_a_merge_is_described(either: Running) -> None:
    sizes = [document(2), document(4)]
    data = merge(either, *sizes, field="files", headers=JSON).json()["data"]
    expected = {
        "input_format": "pdf",
        "output_format": "pdf",
        "original_name": "merged.pdf",
        "file_count": 2,
        "page_count": 6,
        "original_size": sum(map(len, sizes)),
    }
    assert expected.items() <= data.items()
    stored = either.request("GET", data["download_url"].removeprefix("/api/v1"))
    assert len(stored.content) == data["processed_size"]
    assert heights(stored.content) == [1, 2, 1, 2, 3, 4]


def test_tools_have_a_path_by_their_id(server: Running) -> None:
    files = [("files[]", ("a.pdf", document(2))), ("files[]", ("b.pdf", document(1)))]
    merged = server.request("POST", "/tools/pdf-merge", files=files)
    data = server.request("POST", "/tools/pdf-merge/json", files=files).json()["data"]
    assert heights(merged.content) == [1, 2, 1]
    assert (data["page_count"], data["original_page_count"], data["original_name"]) == (3, 3, "merged.pdf")
    problem(server.request("POST", "/tools/pdf-mirror", files=files), 404, "not_found")


@pytest.mark.parametrize(("pages", "left"), [("2", [1, 3, 4, 5]), ("2,5,2", [1, 3, 4]), (" 1 , 3-4", [2, 5])])
def test_pages_are_deleted(either: Running, pages: str, left: list[int]) -> None:
    response = delete(either, document(5), pages)
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/pdf")
    assert 'filename="my.pdf"' in response.headers["Content-Disposition"]
    assert heights(response.content) == left


def test_a_deletion_is_described(either: Running) -> None:
    data = delete(either, document(5), "4-5,2", headers=JSON).json()["data"]
    counts = ("file_count", "page_count", "original_page_count", "deleted_pages", "original_name")
    assert [data[name] for name in counts] == [1, 2, 5, [2, 4, 5], "my.pdf"]


@pytest.mark.parametrize("pages", [None, "", "0", "-1", "two", "6", "all", "1-5", "1,,2", "3-2", "1-999999999", "٣"])
def test_pages_that_cannot_be_deleted(server: Running, pages: str | None) -> None:
    problem(delete(server, document(5), pages), 400, "invalid_parameter", param="pages")


@pytest.mark.parametrize("count", [0, 1, 21])
def test_too_few_or_too_many(server: Running, count: int) -> None:
    no_files = {"password": (None, "secret")}
    response = merge(server, *[document(1)] * count) if count else server.request("POST", "/pdf/merge", files=no_files)
    problem(response, 400, "invalid_parameter", param="files[]")


def test_other_content_is_not_a_document(server: Running) -> None:
    for broken in (image(), b"words"):
        response = merge(server, document(1), document(1), broken)
        problem(response, 400, "invalid_file_type", reason="not_a_pdf")
        assert response.json()["error"]["details"]["index"] == 2
        problem(delete(server, broken, "1"), 400, "invalid_file_type")
    problem(server.request("POST", "/pdf/delete-pages", data={"pages": "1"}), 400, "invalid_parameter")


def test_encrypted_documents(either: Running) -> None:
    locked = document(3, encryption=pikepdf.Encryption(user="sesame", owner="owner"))
    problem(delete(either, locked, "1"), 400, "invalid_file_type", reason="pdf_encrypted")
    problem(delete(either, locked, "1", data={"password": "wrong"}), 400, "invalid_file_type", reason="pdf_encrypted")
    opened = delete(either, locked, "1", data={"password": "sesame"})
    assert heights(opened.content, "sesame") == [2, 3]
    for password in ({}, {"password": "mellon"}):
        response = merge(either, document(1), locked, data=password)
        problem(response, 400, "invalid_file_type", reason="pdf_encrypted", details={"index": 1})
        assert "mellon" not in response.text
    assert heights(merge(either, document(1), locked, data={"password": "sesame"}).content) == [1, 1, 2, 3]


def test_statuses(server: Running) -> None:
    poor = server.account(credits=0)
    problem(merge(server, document(1), document(1), key=poor), 402, "no_credits")
    problem(delete(server, document(2), "1", key=poor), 402, "no_credits")
    large = b"%PDF-1.7\n" + bytes(10_485_760)
    problem(merge(server, document(1), large, key=poor), 413, "file_too_large", reason="bytes")
    problem(delete(server, large, "1", key=poor), 413, "file_too_large", reason="bytes")


def test_a_repeat_is_charged_once(either: Running) -> None:
    key = either.account(credits=2)
    once: dict[str, Any] = {"headers": {"Idempotency-Key": "merge"}, "key": key}
    documents = document(1), document(2)  # a document made later would have another id
    first, again = (merge(either, *documents, **once) for _ in range(2))
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.content == first.content
    problem(merge(either, *reversed(documents), **once), 422, "idempotency_key_reused")
    usage = either.request("GET", "/account/usage", key).json()["data"]
    assert (usage["credits_used"], usage["by_operation"]["pdf_merge"]) == (1, 1)


def test_a_document_is_compressed(server: Running) -> None:
    content = image_document(lambda made: flate(made, PHOTO, Name.DeviceRGB))
    response = server.request("POST", "/pdf/compress", files={"file": ("my.pdf", content)}, data={"quality": 60})
    assert (response.status_code, response.headers["Content-Type"]) == (200, "application/pdf")
    assert [one.width for one in images(response.content)] == [50]
    request: dict[str, Any] = {"files": {"file": ("my.pdf", response.content)}, "data": {"max_bytes": 100_000}}
    data = server.request("POST", "/tools/pdf-compress/json", **request).json()["data"]
    assert (data["processed_size"], data["page_count"], data["quality_used"]) == (len(response.content), 1, 75)
    assert [one["code"] for one in data["warnings"]] == ["kept_original"]
    request["data"] = {"dpi": 5}
    problem(server.request("POST", "/pdf/compress", **request), 400, "invalid_parameter", param="dpi")
