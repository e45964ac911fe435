"""Trial conversions without an API key: POST /try/convert, /try/preview and /try/identify."""

import io
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pikepdf
import pytest
from PIL import Image

from config.pricing import DEFAULT_PLANS, MIB, TRIAL_CREDITS_PER_DAY, TRIAL_PREVIEWS_PER_ADDRESS
from config.settings import Settings
from engine.errors import TimedOut
from storage.tables import accounts, ledger_audit
from storage.tables.accounts import TRIAL_EMAIL
from tests.support.executors.fake import EndlessExecutor, RecordingExecutor, SwitchedExecutor
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as saved_image
from tests.support.samples.pdf_documents import document, opened, saved
from tests.support.samples.storage import read_totals
from tests.support.servers.in_process import Running, Servers, eventually
from tests.support.servers.stores import shared_stores
from web.services.accounts import trials
from web.services.admission.admission import SHORT_DEADLINE
from web.services.admission.tenant_records import PROVING_JOBS

TRIAL_PLAN = DEFAULT_PLANS["trial"]
TRIALS_PER_ADDRESS = Settings().trials
PREVIEWED = ("heic", "cr2", "pdf", "psd", "tiff", "svg")


@pytest.fixture
def site(servers: Servers, data_dir: Path) -> Iterator[Running]:
    """A new server that trusts X-Forwarded-For of this machine."""
    with servers.running(data_dir, trusted_proxies="127.0.0.1") as running:
        yield running


def posted(site: Running, path: str, content: bytes, address: str = "192.0.2.1", **form: str) -> httpx.Response:
    """Sends the form as a page of the site does."""
    headers = {"Origin": site.url, "X-Forwarded-For": address}
    return http.post(site.url + path, files={"file": ("photo", content)}, data=form, headers=headers, timeout=60)


def tried(site: Running, content: bytes, target: str, address: str = "192.0.2.1", **form: str) -> httpx.Response:
    return posted(site, "/try/convert", content, address, output_format=target, **form)


def previewed(site: Running, content: bytes, address: str = "192.0.2.1", **form: str) -> httpx.Response:
    return posted(site, "/try/preview", content, address, **form)


def audited(site: Running) -> accounts.StoredAccount:
    """The account of trials, whose ledger is sound."""
    assert site.database.run_blocking(ledger_audit.check) == ()
    account = site.database.run_blocking(accounts.find, TRIAL_EMAIL)
    assert account is not None
    return account


def _abandoned(site: Running, address: str) -> None:
    """Sends a file for a conversion, and disconnects after a second."""
    headers = {"Origin": site.url, "X-Forwarded-For": address}
    form: dict[str, Any] = {"files": {"file": ("photo", sample("png"))}, "data": {"output_format": "jpeg"}}
    with suppress(httpx.ReadTimeout):
        http.post(f"{site.url}/try/convert", headers=headers, timeout=1, **form)


def encrypted_pdf() -> bytes:
    return saved(opened(document("secret", 2)), encryption=pikepdf.Encryption(owner="o", user="secret"))


class TestKeyLimit:
    def test_the_result_is_that_of_the_api_with_a_description(self, site: Running) -> None:
        response = tried(site, sample("png"), "jpeg", quality="40")
        assert response.status_code == 200
        assert response.content == site.convert(sample("png"), "jpeg", quality="40").content
        described = json.loads(response.headers["X-Result"])
        assert (described["input_format"], described["output_format"]) == ("png", "jpeg")
        assert described["processed_size"] == len(response.content)
        assert described["trials_remaining"] == TRIALS_PER_ADDRESS - 1
        assert response.headers["Content-Disposition"].startswith('attachment; filename="photo.jpg"')
        assert "X-Credits-Remaining" not in response.headers

    def test_warnings_have_messages(self, site: Running) -> None:
        translucent = io.BytesIO()
        Image.new("RGBA", (8, 8), (200, 80, 0, 100)).save(translucent, "PNG")
        (warning,) = json.loads(tried(site, translucent.getvalue(), "jpeg").headers["X-Result"])["warnings"]
        assert warning["code"] == "alpha_flattened"
        assert warning["message"].endswith(".")

    def test_inspection_costs_no_trial(self, site: Running) -> None:
        for _ in range(TRIALS_PER_ADDRESS + 1):
            response = tried(site, document("pages", 3), "png", dry_run="true")
            assert response.json()["data"]["pages"] == 1
            assert response.json()["meta"].keys() == {"request_id"}
        assert audited(site).credits_used_total == 0

    def test_nothing_is_stored(self, site: Running) -> None:
        assert tried(site, sample("png"), "jpeg").status_code == 200
        assert [*(site.data_dir / "blobs").rglob("blob_*")] == []
        assert eventually(lambda: site.work_files() == [])


class TestSamples:
    """What options make of a small PNG."""

    def test_quality_of_a_sample(self, site: Running) -> None:
        content = saved_image(Image.effect_noise((320, 240), 60), "PNG")
        low, high = (previewed(site, content, output_format="jpeg", quality=quality) for quality in ("5", "95"))
        assert low.headers["Content-Type"] == high.headers["Content-Type"] == "image/jpeg"
        assert len(low.content) < len(high.content) / 3
        assert audited(site).credits_used_total == 0

    def test_a_sample_is_small_and_nothing_but_encoded(self, site: Running) -> None:
        content = saved_image(Image.effect_noise((2000, 1000), 60), "PNG")
        options = {"dpr": "4", "pad": "500", "width": "2000", "rotate": "90", "crop": "0,0,10,10", "max_bytes": "1000"}
        made = previewed(site, content, output_format="webp", **options)
        assert Image.open(io.BytesIO(made.content)).size == (320, 160)

    def test_only_samples_of_png(self, site: Running) -> None:
        for content in (sample("jpeg"), document("pages", 3)):
            problem(previewed(site, content, output_format="pdf"), 400, "invalid_parameter", param="file")
        problem(previewed(site, sample("png"), output_format="xyz"), 400, "unsupported_conversion")


class TestIdentification:
    """Of a file by its beginning, before it is sent."""

    def test_beginnings(self, site: Running) -> None:
        bmp = saved_image(Image.effect_noise((400, 300), 60), "BMP")
        for content, name in ((bmp, "bmp"), (sample("heic") + bytes(100_000), "heic"), (b"text " * 30_000, "txt")):
            assert identified(site, content[:65_536], f"photo.{name}").json()["data"] == {"input_format": name}
        assert audited(site).credits_used_total == 0

    def test_no_format(self, site: Running) -> None:
        problem(identified(site, b"\0nothing" * 8000), 400, "invalid_file_type", reason="unrecognized")
        docx = identified(site, b"PK\3\4" + bytes(60_000))
        assert docx.json()["data"] == {"input_format": None}, "the end of a ZIP archive says what is in it"


def identified(site: Running, beginning: bytes, name: str = "photo") -> httpx.Response:
    files = {"file": (name, beginning)}
    return http.post(f"{site.url}/try/identify", files=files, headers={"Origin": site.url})


class TestLimits:
    def test_trials_of_an_address(self, site: Running) -> None:
        with ThreadPoolExecutor(8) as pool:
            answers = [*pool.map(lambda _: tried(site, sample("png"), "jpeg"), range(TRIALS_PER_ADDRESS + 3))]
        assert sorted(answer.status_code for answer in answers) == [200] * TRIALS_PER_ADDRESS + [429] * 3
        refused = tried(site, sample("png"), "jpeg")
        problem(refused, 429, "rate_limit_exceeded", reason="trials", retryable=True)
        assert "Register for an API key" in refused.json()["error"]["message"]
        assert refused.json()["error"]["details"]["register_url"] == "/register"
        page = http.get(site.url, headers={"X-Forwarded-For": "192.0.2.1"}).text
        assert f"<strong>0 of {TRIALS_PER_ADDRESS}</strong>" in page
        assert 0 < int(refused.headers["Retry-After"]) <= 86_400
        assert tried(site, sample("png"), "jpeg", "192.0.2.2").status_code == 200
        assert audited(site).credits_used_total == TRIALS_PER_ADDRESS + 1

    def test_size(self, site: Running) -> None:
        for path in ("/try/convert", "/try/preview"):
            response = posted(site, path, bytes(5 * MIB + 1))
            problem(response, 413, "file_too_large", details={"max_file_size": 5 * MIB})

    @pytest.mark.parametrize(
        "headers",
        [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "https://evil.example"}, {}],
    )
    @pytest.mark.parametrize("path", ["/try/convert", "/try/preview", "/try/identify"])
    def test_only_pages_of_this_site(self, server: Running, path: str, headers: dict[str, str]) -> None:
        files = {"file": ("photo.png", sample("png"))}
        response = http.post(server.url + path, files=files, data={"output_format": "jpeg"}, headers=headers)
        problem(response, 400, "invalid_parameter", reason="cross_site")

    def test_previews_of_an_address(self, servers: Servers, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trials, "TRIAL_PREVIEWS_PER_ADDRESS", 2)
        with servers.running(data_dir) as site:
            assert [previewed(site, sample("png")).status_code for _ in range(3)] == [200, 200, 429]
        assert TRIAL_PREVIEWS_PER_ADDRESS > 2 * TRIALS_PER_ADDRESS

    def test_credits_of_a_day_are_shared_by_all_addresses(self, site: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(trials, "TRIAL_CREDITS_PER_DAY", 2)
        answers = [tried(site, sample("png"), "jpeg", f"192.0.2.{number}") for number in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 429]
        problem(answers[-1], 429, "rate_limit_exceeded", reason="trials")
        assert "credits_remaining" not in answers[-1].text
        assert audited(site).credits_remaining == 0

    @pytest.mark.parametrize(("overruns", "slots"), [(0, TRIAL_PLAN.max_concurrent), (3, 1)])
    def test_slots_and_overruns_by_address(self, servers: Servers, data_dir: Path, overruns: int, slots: int) -> None:
        error = TimedOut("Late.")
        error.seconds = SHORT_DEADLINE
        executor = EndlessExecutor(*[error] * overruns)
        with servers.running(data_dir, executor, workers=8, trusted_proxies="127.0.0.1") as site:
            for _ in range(overruns):
                problem(tried(site, sample("png"), "jpeg"), 500, "processing_failed", reason="timeout")
            with ThreadPoolExecutor(4) as pool:
                for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.2"):
                    pool.submit(_abandoned, site, address)
            assert executor.most_running == slots + TRIAL_PLAN.max_concurrent

    def test_failed_conversions_are_not_charged(self, site: Running) -> None:
        problem(tried(site, b"\x89PNG\r\n\x1a\n" + bytes(99), "jpeg"), 500, "processing_failed")
        account = audited(site)
        assert (account.credits_remaining, account.credits_held) == (TRIAL_CREDITS_PER_DAY, 0)
        assert account.credits_used_total == 0


class TestAccount:
    @pytest.mark.parametrize("path", ["/register", "/api/v1/register"])
    def test_registration_refuses_its_address(self, site: Running, path: str) -> None:
        assert tried(site, sample("png"), "jpeg").status_code == 200
        fields: dict[str, Any] = {"email": TRIAL_EMAIL, "name": "Mallory"}
        body: dict[str, Any] = {"json": fields} if "api" in path else {"data": fields}
        assert http.post(site.url + path, headers={"Origin": site.url}, **body).status_code == 400
        assert not (site.data_dir / "outbox").exists() or [*(site.data_dir / "outbox").iterdir()] == []

    def test_servers_with_one_database_share_the_account(
        self, servers: Servers, tmp_path: Path, new_postgres_url: Any, s3_server: Any
    ) -> None:
        settings = shared_stores(tmp_path, new_postgres_url(), s3_server)
        with settings as stores, servers.running(tmp_path / "a", **stores) as one:
            with servers.running(tmp_path / "b", **stores) as two, ThreadPoolExecutor(4) as pool:
                answers = [*pool.map(lambda number: tried((one, two)[number % 2], sample("png"), "jpeg"), range(4))]
            assert [answer.status_code for answer in answers] == [200] * 4
            account = audited(one)
        assert (account.credits_used_total, account.credits_remaining) == (4, TRIAL_CREDITS_PER_DAY - 4)

    def test_clients_share_no_process(self, servers: Servers, data_dir: Path) -> None:
        executor = RecordingExecutor(servers.executor)
        with servers.running(data_dir, executor, trusted_proxies="127.0.0.1") as site:
            for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
                assert tried(site, sample("png"), "jpeg", address).status_code == 200
            assert previewed(site, sample("png")).status_code == 200
            assert site.convert(sample("png"), "jpeg").status_code == 200
        first, second, third, preview, _ = executor.accounts
        assert first == second == preview != third
        assert [job.own_process for job in executor.jobs] == [True, True, True, True, False]


class TestPreviews:
    @pytest.mark.parametrize("name", PREVIEWED)
    def test_formats(self, server: Running, name: str) -> None:
        response = previewed(server, sample(name))
        assert response.status_code == 200, response.text
        image = Image.open(io.BytesIO(response.content))
        assert image.format == "WEBP"
        assert max(image.size) <= 640

    def test_large_images_are_made_small(self, server: Running) -> None:
        large = io.BytesIO()
        Image.new("L", (3000, 1500)).save(large, "TIFF", compression="tiff_lzw")
        assert Image.open(io.BytesIO(previewed(server, large.getvalue()).content)).size == (640, 320)

    def test_first_page_of_an_encrypted_document(self, server: Running) -> None:
        problem(previewed(server, encrypted_pdf()), 400, "invalid_file_type", reason="pdf_encrypted")
        assert previewed(server, encrypted_pdf(), password="secret").status_code == 200

    def test_previews_do_not_open_the_kept_slot(self, servers: Servers, data_dir: Path) -> None:
        executor, endless = SwitchedExecutor(servers.executor), EndlessExecutor()
        with servers.running(data_dir, executor, trusted_proxies="127.0.0.1") as site:
            for _ in range(PROVING_JOBS):
                assert site.convert(sample("png"), "jpeg").status_code == 200
                assert previewed(site, sample("png")).status_code == 200
            executor.executor = endless
            with ThreadPoolExecutor(2) as pool:
                for _ in range(2):
                    pool.submit(_abandoned, site, "192.0.2.1")
            assert endless.most_running == 1

    def test_previews_cost_no_trial_and_no_credit(self, site: Running) -> None:
        for _ in range(TRIALS_PER_ADDRESS + 1):
            assert previewed(site, sample("heic")).status_code == 200
        assert tried(site, sample("png"), "jpeg").status_code == 200
        account = audited(site)
        assert (account.credits_used_total, account.credits_remaining) == (1, TRIAL_CREDITS_PER_DAY - 1)


def test_its_account_is_no_customer(site: Running) -> None:
    before = read_totals(site.database)
    assert tried(site, sample("png"), "webp").status_code == 200
    assert read_totals(site.database) == before
    listed = site.database.run_blocking(accounts.list_all)
    assert TRIAL_EMAIL not in {account.email for account in listed}
    for account in listed:
        site.database.run_blocking(accounts.delete, account.email)
    assert read_totals(site.database).free_accounts == 0


def test_it_is_no_api(server: Running) -> None:
    assert not any("/try" in path for path in http.get(f"{server.api}/openapi.json").json()["paths"])
