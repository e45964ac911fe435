"""What the specification says, by chapter."""

import re
import time
from typing import Any

import pytest

from tests.conformance.service import Service, pdf, png, refused

_TIME = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_JSON = "application/json"
_NO_FILE = "file_0000000000000000000000"
_RAW = {"cr2", "nef", "arw", "dng", "raf", "orf", "rw2"}
_TYPES = {
    "file_id": str,
    "input_format": str,
    "output_format": str,
    "original_size": int,
    "processed_size": int,
    "reduction_percent": float,
    "download_url": str,
    "processing_time_ms": int,
}


def _is_a_result(data: dict[str, Any], content: bytes) -> None:
    """Asserts the fields of a conversion result."""
    assert {name: type(data[name]) for name in _TYPES} == _TYPES
    assert data["original_size"] == len(content)
    assert data["reduction_percent"] == round((1 - data["processed_size"] / len(content)) * 100, 1)
    assert data["download_url"].endswith(f"/api/v1/files/{data['file_id']}/download")


def _costs(service: Service, before: int, credits: int) -> None:
    """Asserts the price of what was done since; accounts without a limit pay nothing."""
    assert before - service.balance() in (credits, 0 if service.keys.outbox is None else credits)


class TestConversion:
    def test_the_response_is_the_file(self, service: Service) -> None:
        before = service.balance()
        response = service.convert(png(), "jpeg")

        assert response.status_code == 200
        assert (response.headers["Content-Type"], response.content[:2]) == ("image/jpeg", b"\xff\xd8")
        assert re.match(r'attachment; filename="photo\.jpe?g"', response.headers["Content-Disposition"])
        assert int(response.headers["X-Credits-Remaining"]) in (before - 1, before)
        _costs(service, before, 1)

    def test_json_describes_a_stored_result(self, service: Service) -> None:
        response = service.convert(png(), "jpeg", accept=_JSON)
        data = response.json()["data"]
        _is_a_result(data, png())
        status = service.data("GET", f"/files/{data['file_id']}")
        stored = service.send("GET", f"/files/{data['file_id']}/download")

        assert (data["input_format"], data["output_format"], status["status"]) == ("png", "jpeg", "processed")
        assert (stored.status_code, len(stored.content)) == (200, data["processed_size"])
        assert {name: status[name] for name in _TYPES if name in status} == {
            name: data[name] for name in _TYPES if name in status
        }
        assert {*_TYPES} - {*status} <= {"processing_time_ms"}
        assert {name: status[name] for name in ("width", "height", "pages")} == {"width": 8, "height": 6, "pages": 1}

    @pytest.mark.parametrize(("accept", "is_json"), [("*/*", False), ("image/*, application/json;q=0", False)])
    def test_json_must_be_named(self, service: Service, accept: str, is_json: bool) -> None:
        assert (service.convert(png(), accept=accept).headers["Content-Type"] == _JSON) is is_json

    def test_the_content_decides_the_type(self, service: Service) -> None:
        data = service.convert(png(), "jpeg", name="photo.webp", accept=_JSON).json()["data"]
        assert data["input_format"] == "png"

    @pytest.mark.parametrize("quality", ["1", "100"])
    def test_quality(self, service: Service, quality: str) -> None:
        assert service.convert(png(), "jpeg", quality=quality).status_code == 200

    @pytest.mark.parametrize("quality", ["0", "101", "-1", "80.5", "true", "high", ""])
    def test_wrong_quality(self, service: Service, quality: str) -> None:
        refused(service.convert(png(), "jpeg", quality=quality), 400, "invalid_parameter", param="quality")

    def test_quality_is_for_lossy_formats(self, service: Service) -> None:
        response = service.convert(png(), "png", quality="80", accept=_JSON)
        assert "quality_ignored" in {one["code"] for one in response.json()["data"]["warnings"]}

    @pytest.mark.parametrize("target", ["jpg", "JPEG", "jpeg"])
    def test_names_of_formats(self, service: Service, target: str) -> None:
        assert service.convert(png(), target, accept=_JSON).json()["data"]["output_format"] == "jpeg"

    def test_refusals_are_not_charged(self, service: Service) -> None:
        before = service.balance()
        refused(service.convert(png(), "nonsense"), 400, "unsupported_conversion")
        refused(service.convert(b"\0\1\2\3" * 10), 400, "invalid_file_type", reason="unrecognized")
        refused(service.convert(b""), 400, "invalid_file_type", reason="empty_file")
        refused(service.convert(png()[:50]), 500, "processing_failed", reason="corrupt_input", retryable=False)
        refused(service.convert(png(), frobnicate="1"), 400, "invalid_parameter", param="frobnicate")
        _costs(service, before, 0)

    def test_required_fields(self, service: Service) -> None:
        without_file = service.send("POST", "/convert", files={"other": b""}, data={"output_format": "png"})
        without_target = service.send("POST", "/convert", files={"file": ("photo.png", png())})
        refused(without_file, 400, "invalid_parameter")
        refused(without_target, 400, "invalid_parameter", param="output_format")


class TestFiles:
    def test_in_two_steps(self, service: Service) -> None:
        before = service.balance()
        file = service.upload(png())
        path = f"/files/{file['file_id']}"
        pending = service.data("GET", path)
        refused(service.send("GET", f"{path}/download"), 404, "not_found")
        _costs(service, before, 0)
        wrong = service.send("POST", f"{path}/convert", json={"output_format": "jpeg", "quality": 101})
        refused(wrong, 400, "invalid_parameter", param="quality")
        data = service.data("POST", f"{path}/convert", json={"output_format": "jpeg", "quality": 70})
        stored = service.send("GET", f"{path}/download")

        assert (file["extension"], file["size"], file["original_name"]) == ("png", len(png()), "photo.png")
        assert pending["status"] == "pending"
        _is_a_result(data, png())
        assert data["file_id"] == file["file_id"]
        assert service.data("GET", path)["status"] == "processed", "after the download as before"
        assert (stored.headers["Content-Type"], stored.content[:2]) == ("image/jpeg", b"\xff\xd8")
        _costs(service, before, 1)
        assert service.data("DELETE", path)
        refused(service.send("GET", path), 404, "not_found")

    @pytest.mark.parametrize(
        ("method", "path"),
        [("GET", ""), ("GET", "/download"), ("POST", "/convert"), ("DELETE", "")],
    )
    def test_unknown_files(self, service: Service, method: str, path: str) -> None:
        body: dict[str, Any] = {"json": {"output_format": "png"}} if method == "POST" else {}
        refused(service.send(method, f"/files/{_NO_FILE}{path}", **body), 404, "not_found")

    def test_files_of_others(self, service: Service) -> None:
        if service.keys.empty is None:
            pytest.skip("no other account is known")
        file = service.upload(png())
        refused(service.send("GET", f"/files/{file['file_id']}", service.keys.empty), 404, "not_found")


class TestBatches:
    def test_some_files_of_a_batch(self, service: Service) -> None:
        before = service.balance()
        batch = service.data("POST", "/batch", json={"output_format": "jpeg"})
        path = f"/batch/{batch['batch_id']}"
        contents = (png(), png()[:50], png(4, 4), png(5, 5))
        ids = [service.upload(content, f"{path}/files")["file_id"] for content in contents]
        _costs(service, before, 0)
        chosen = [ids[2], ids[1], ids[0], _NO_FILE]
        done = service.data("POST", f"{path}/convert", json={"file_ids": chosen, "output_format": "jpeg"})
        known = service.data("GET", path)

        assert (batch["output_format"], batch["status"]) == ("jpeg", "created")
        assert [one["file_id"] for one in done["results"]] == chosen
        assert [one["status"] for one in done["results"]] == ["success", "failed", "success", "failed"]
        assert (done["total"], done["successful"], done["failed"]) == (4, 2, 2)
        assert done["results"][3]["error"]["code"] == "not_found"
        assert (known["status"], known["total"], known["processed"], known["failed"]) == ("partial", 4, 2, 1)
        _costs(service, before, 2)
        url = done["results"][0]["download_url"].partition("/api/v1")[2]
        assert service.send("GET", url).content[:2] == b"\xff\xd8"

    @pytest.mark.parametrize("ids", [[], "all", [1], [_NO_FILE] * 1001])
    def test_wrong_ids(self, service: Service, ids: object) -> None:
        batch = service.data("POST", "/batch", json={"output_format": "jpeg"})
        body = {"file_ids": ids, "output_format": "jpeg"}
        response = service.send("POST", f"/batch/{batch['batch_id']}/convert", json=body)
        refused(response, 400, "invalid_parameter", param="file_ids")

    def test_wrong_batches(self, service: Service) -> None:
        refused(service.send("POST", "/batch", json={}), 400, "invalid_parameter", param="output_format")
        refused(service.send("POST", "/batch", json={"output_format": "nonsense"}), 400, "unsupported_conversion")
        refused(service.send("GET", "/batch/batch_0000000000000000000000"), 404, "not_found")


class TestPdf:
    def _merge(self, service: Service, *contents: bytes, accept: str = "*/*") -> Any:
        files = [("files[]", (f"{index}.pdf", content)) for index, content in enumerate(contents)]
        return service.send("POST", "/pdf/merge", files=files, headers={"Accept": accept})

    def test_merge(self, service: Service) -> None:
        before = service.balance()
        response = self._merge(service, pdf(1), pdf(2))
        data = self._merge(service, *[pdf()] * 20, accept=_JSON).json()["data"]

        assert (response.headers["Content-Type"], response.content[:5]) == ("application/pdf", b"%PDF-")
        assert (data["file_count"], data["page_count"]) == (20, 20)
        _costs(service, before, 2)

    @pytest.mark.parametrize("count", [1, 21])
    def test_two_to_twenty(self, service: Service, count: int) -> None:
        refused(self._merge(service, *[pdf()] * count), 400, "invalid_parameter", param="files[]")

    def test_only_pdf(self, service: Service) -> None:
        refused(self._merge(service, pdf(), png()), 400, "invalid_file_type", reason="not_a_pdf")

    @pytest.mark.parametrize(("pages", "left"), [("2", 3), ("1,4", 2), (" 3 , 3 ", 3)])
    def test_delete_pages(self, service: Service, pages: str, left: int) -> None:
        options: dict[str, Any] = {
            "files": {"file": ("a.pdf", pdf(4))},
            "data": {"pages": pages},
            "headers": {"Accept": _JSON},
        }
        before = service.balance()
        data = service.data("POST", "/pdf/delete-pages", **options)
        _costs(service, before, 1)
        assert (data["page_count"], data["original_page_count"]) == (left, 4)

    @pytest.mark.parametrize("pages", ["0", "5", "-1", "two", "", "1,2,3,4", "1;2"])
    def test_wrong_pages(self, service: Service, pages: str) -> None:
        files, data = {"file": ("a.pdf", pdf(4))}, {"pages": pages}
        response = service.send("POST", "/pdf/delete-pages", files=files, data=data)
        refused(response, 400, "invalid_parameter", param="pages")


class TestCatalogue:
    def test_formats(self, service: Service) -> None:
        data = service.data("GET", "/formats", None)
        pairs = [(one["input_format"], one["output_format"]) for one in data["conversions"]]
        by_input = data["by_input_format"]

        assert data["total"] == len(pairs) == len({*pairs})
        assert pairs == [(source, target) for source, targets in by_input.items() for target in targets]
        assert {"jpeg", "png", "webp", "avif", "heic", "tiff", "bmp", "svg", "psd", "pdf"} <= by_input.keys()
        assert by_input.keys() & _RAW in (_RAW, set())
        assert not _RAW & {target for _, target in pairs}

    def test_tools(self, service: Service) -> None:
        data = service.data("GET", "/tools", None)
        assert data["total"] == len(data["tools"])
        for tool in data["tools"]:
            assert {"id", "name", "category", "description", "endpoint", "credits", "plugin"} <= tool.keys()
            assert tool["input_formats"]
            assert tool["output_formats"]
            described = [data["options"][one.get("ref", one["name"])] for one in tool["options"]]
            assert [one["name"] for one in described] == [one["name"] for one in tool["options"]]


class TestAccount:
    def test_account(self, service: Service) -> None:
        data = service.data("GET", "/account")
        texts = ("name", "email", "tier", "created_at", "last_used_at")
        numbers = ("credits_remaining", "credits_total_purchased", "max_file_size")

        assert [type(data[name]) for name in texts + numbers] == [str] * 5 + [int] * 3
        assert re.fullmatch(_TIME, data["created_at"])
        assert re.fullmatch(_TIME, data["last_used_at"])
        sizes = {"free": 10_485_760, "paid": 104_857_600}
        assert data["max_file_size"] == sizes.get(data["tier"], data["max_file_size"])
        assert data["rate_limit"]["limit"] >= 1

    def test_usage(self, service: Service) -> None:
        assert service.convert(png(), "jpeg").status_code == 200
        month = time.strftime("%Y-%m", time.gmtime())
        data = service.data("GET", "/account/usage")
        assert data["period"] == month
        assert data["total_conversions"] >= 1
        assert data["bytes_total"] == data["bytes_in"] + data["bytes_out"]
        assert service.data("GET", f"/account/usage?period={month}-01")["period"] == f"{month}-01"

    @pytest.mark.parametrize("period", ["yesterday", "2026", "2026-13", "2026-02-30", ""])
    def test_wrong_periods(self, service: Service, period: str) -> None:
        refused(service.send("GET", f"/account/usage?period={period}"), 400, "invalid_parameter", param="period")


class TestRegistration:
    @pytest.mark.parametrize(
        ("param", "body"),
        [
            ("name", {"email": "a@example.com", "name": "x"}),
            ("name", {"email": "a@example.com", "name": "x" * 101}),
            ("name", {"email": "a@example.com"}),
            ("email", {"email": "nobody", "name": "Example"}),
            ("email", {"name": "Example"}),
        ],
    )
    def test_wrong_fields(self, service: Service, param: str, body: dict[str, str]) -> None:
        response = service.send("POST", "/register", None, json=body)
        if response.status_code == 403:
            pytest.skip("registration is closed")
        refused(response, 400, "invalid_parameter", param=param)

    def test_registration(self, service: Service) -> None:
        if service.keys.outbox is None:
            pytest.skip("the mails are not here")
        body = {"email": "new@example.com", "name": "New"}
        data = service.data("POST", "/register", None, json=body)
        assert (data["email"], data["verification_sent"], type(data["message"])) == ("new@example.com", True, str)
        mails: list[str] = []
        while not mails:
            time.sleep(0.02)
            mails = [path.read_text() for path in service.keys.outbox.glob("*.eml")]
        (token,) = {*re.findall(r"token=(?:3D)?([0-9a-f]{64})", mails[0].replace("=\n", ""))}
        made = service.data("GET", f"/verify?token={token}", None, headers={"Accept": _JSON})
        assert service.data("GET", "/account", made["api_key"])["credits_remaining"] == 50
        refused(service.send("GET", f"/verify?token={token}", None, headers={"Accept": _JSON}), 404, "not_found")

    def test_tokens(self, service: Service) -> None:
        unknown = service.send("GET", f"/verify?token={'0' * 64}", None, headers={"Accept": _JSON})
        malformed = service.send("GET", "/verify?token=abc", None, headers={"Accept": _JSON})
        page = service.send("GET", f"/verify?token={'0' * 64}", None, headers={"Accept": "text/html"})
        refused(unknown, 404, "not_found")
        refused(malformed, 400, "invalid_parameter", param="token")
        assert (page.status_code, "/developers/verify" in page.headers["Location"]) == (303, True)


class TestPurchase:
    @pytest.mark.parametrize(
        ("pack", "credits", "euros"), [("starter", 500, 5), ("pro", 2000, 15), ("business", 10000, 50)]
    )
    def test_packs(self, service: Service, pack: str, credits: int, euros: int) -> None:
        response = service.send("POST", "/credits/purchase", json={"pack": pack})
        if response.status_code != 200:
            pytest.skip("nothing is sold, or the packs are others")
        data = response.json()["data"]
        assert data["checkout_url"].startswith("http")
        if service.keys.outbox is not None:
            assert (data["credits"], data["amount"], data["language"]) == (credits, euros * 100, "en")

    def test_unknown_packs(self, service: Service) -> None:
        response = service.send("POST", "/credits/purchase", json={"pack": "nothing"})
        if response.status_code in (404, 500):
            pytest.skip("nothing is sold")
        refused(response, 400, "invalid_parameter", param="pack")


class TestAuthentication:
    @pytest.mark.parametrize(
        "endpoint",
        [
            *("POST /convert", "POST /files/upload", f"POST /files/{_NO_FILE}/convert", f"GET /files/{_NO_FILE}"),
            *(f"GET /files/{_NO_FILE}/download", "POST /batch", "POST /batch/x/files", "POST /batch/x/convert"),
            *("GET /batch/x", "POST /pdf/merge", "POST /pdf/delete-pages", "GET /account", "GET /account/usage"),
            "POST /credits/purchase",
        ],
    )
    def test_a_key_is_needed(self, service: Service, endpoint: str) -> None:
        method, path = endpoint.split()
        response = service.send(method, path, None)
        refused(response, 401, "invalid_api_key")
        assert response.headers["WWW-Authenticate"].startswith("Bearer")

    @pytest.mark.parametrize("header", ["Bearer cvd_live_wrong", "Basic YTpi", "Bearer", "Bearer KEY KEY"])
    def test_wrong_keys(self, service: Service, header: str) -> None:
        value = header.replace("KEY", service.keys.main)
        refused(service.send("GET", "/account", None, headers={"Authorization": value}), 401, "invalid_api_key")

    def test_the_scheme_has_no_case(self, service: Service) -> None:
        assert service.data("GET", "/account", headers={"Authorization": f"bearer {service.keys.main}"})

    def test_an_unverified_account(self, service: Service) -> None:
        if service.keys.unverified is None:
            pytest.skip("no unverified account is known")
        refused(service.send("GET", "/account", service.keys.unverified), 403, "key_not_verified")

    def test_an_account_without_credits(self, service: Service) -> None:
        if service.keys.empty is None:
            pytest.skip("no account without credits is known")
        refused(service.convert(png(), key=service.keys.empty), 402, "no_credits")


class TestLimits:
    def test_the_largest_file(self, service: Service) -> None:
        limit = service.data("GET", "/account")["max_file_size"]
        if limit > 10_485_760:
            pytest.skip("the account takes large files")
        file = service.upload(png() + bytes(limit - len(png())))
        response = service.send("POST", "/files/upload", files={"file": png() + bytes(limit - len(png()) + 1)})

        assert file["size"] == limit
        refused(response, 413, "file_too_large", reason="bytes", details={"max_file_size": limit})
        service.data("DELETE", f"/files/{file['file_id']}")

    def test_the_rate_limit_counts(self, service: Service) -> None:
        first, second = (service.send("GET", "/account").headers for _ in range(2))
        reset = int(first["X-RateLimit-Reset"])
        assert abs(reset - time.time()) < 120
        same_window = second["X-RateLimit-Reset"] == first["X-RateLimit-Reset"]
        assert int(second["X-RateLimit-Remaining"]) < int(first["X-RateLimit-Remaining"]) or not same_window

    def test_what_does_not_exist(self, service: Service) -> None:
        refused(service.send("GET", "/nothing"), 404, "not_found")
        wrong = service.send("DELETE", "/formats")
        refused(wrong, 405, "method_not_allowed")
        assert "GET" in wrong.headers["Allow"]
        assert service.client.get(f"{service.url}/formats").status_code == 404
