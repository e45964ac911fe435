"""The pages in a real browser. Screenshots are saved in the folder given by --screenshots."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zipfile import ZipFile

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import running_browser, violations
from tests.support.corpus import load_corpus
from tests.support.outbox import email_to
from tests.support.pdf_documents import document
from tests.support.samples import sample, saved
from tests.support.servers import Running, Servers

pytestmark = pytest.mark.long

PAGES = ("/", "/docs", "/register", "/developers/verify", "/status", "/dashboard", "/checkout/none")
MAX_BYTES = 200_000  # of a page with its assets


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_browser() as running:
        yield running


@pytest.fixture(scope="module")
def site(servers: Servers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A server whose base URL has the port it listens on, so that its links work."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings: dict[str, Any] = {"rate_limit_free": 10_000, "simulated_checkout": True}
    with servers.running(tmp_path_factory.mktemp("site"), port=port, **settings) as running:
        yield running


@pytest.fixture
def page(browser: Browser, site: Running) -> Iterator[Page]:
    """A new page. The test fails if one of its scripts does."""
    errors: list[str] = []
    context = browser.new_context(base_url=site.url.replace("127.0.0.1", "localhost"))
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if "Security Policy" in message.text else None)
    yield opened
    context.close()
    assert errors == []


@pytest.fixture
def keep(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Page, str], None]:
    """Returns a function that saves a screenshot."""
    chosen = pytestconfig.getoption("--screenshots")
    folder = Path(chosen) if chosen else tmp_path_factory.getbasetemp() / "screenshots"

    def save(page: Page, name: str) -> None:
        page.screenshot(path=folder / f"{name}.png", full_page=True)

    return save


def photo() -> bytes:
    """Returns a HEIC photo from the corpus, or a generated one if there is none."""
    real = [entry for entry in load_corpus() if entry.format == "HEIC" and entry.sound]
    small = min(real, key=lambda entry: entry.path.stat().st_size, default=None)
    return small.path.read_bytes() if small else sample("heic")


def translucent_png() -> bytes:
    return saved(Image.new("RGBA", (40, 30), (200, 80, 0, 100)), "PNG")


def sign_in(page: Page, key: str) -> None:
    page.goto("/dashboard")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#credits")).to_be_visible()


def choose_in_demo(page: Page, content: bytes, name: str, target: str) -> None:
    page.locator("#file").set_input_files({"name": name, "mimeType": "", "buffer": content})
    page.get_by_label("Convert to").select_option(target)


def convert_in_demo(page: Page, *chosen: Any) -> None:
    """Converts the file that is chosen, or was chosen before."""
    if chosen:
        choose_in_demo(page, *chosen)
    page.get_by_role("button", name="Convert", exact=True).click()


def use_key(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Use this key").click()


@pytest.mark.parametrize("path", PAGES)
def test_accessibility_size_and_narrow_screens(
    browser: Browser, site: Running, keep: Callable[[Page, str], None], path: str
) -> None:
    """No accessibility violations, no external requests, at most MAX_BYTES, no horizontal scrolling at 360 px."""
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    sizes: dict[str, int] = {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
    page.goto(f"{site.url}{path}")
    keep(page, f"{path.strip('/').replace('/', '-') or 'landing'}-light")
    assert violations(page) == []
    assert {urlsplit(url).netloc for url in sizes} == {urlsplit(site.url).netloc}
    assert sum(sizes.values()) < MAX_BYTES
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    context.close()


def test_copy_buttons_do_not_cover_the_code_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto("/")
    button, code = (page.locator(f"pre {part}").first.bounding_box() for part in (".copy", "code"))
    assert button
    assert code
    assert button["y"] + button["height"] <= code["y"]


@pytest.mark.parametrize("path", ["/docs", "/status"])
def test_contrast_in_the_dark(browser: Browser, site: Running, keep: Callable[[Page, str], None], path: str) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(f"{site.url}{path}")
    keep(page, f"{path.strip('/')}-dark")
    assert violations(page, "color-contrast") == []
    context.close()


def test_demo_conversion(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    use_key(page, site.account(credits=3))
    expect(page.locator("#balance")).to_have_text("3 credits")
    convert_in_demo(page, photo(), "holiday.heic", "webp")
    expect(page.locator("#message")).to_have_text("Done: heic to webp.")
    expect(page.locator("#balance")).to_have_text("2 credits")
    expect(page.locator("#before")).to_contain_text("cannot show HEIC")
    assert page.locator("#after img").evaluate("image => image.decode().then(() => image.naturalWidth)") > 0
    curl, fetch = page.locator('.sample[data-language="curl"]').all()
    expect(curl).to_contain_text('-F "file=@holiday.heic"')
    expect(fetch).to_contain_text("/download")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    fetch.get_by_role("button", name="Copy").click()
    copied = page.evaluate("navigator.clipboard.readText()")
    assert copied == fetch.locator("code").text_content()
    page.get_by_text("Python", exact=True).click()
    expect(page.locator('.sample[data-language="Python"]').first).to_be_visible()
    expect(curl).to_be_hidden()
    keep(page, "landing-tried")
    assert violations(page) == []
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download the result").click()
    assert saved.value.suggested_filename == "holiday.webp"
    assert saved.value.path().read_bytes()[8:12] == b"WEBP"
    convert_in_demo(page, sample("png"), "drawing.png", "tiff")
    expect(page.locator("#message")).to_have_text("Done: png to tiff.")
    programs = page.locator(".sample code").all_text_contents()
    assert sum("drawing.tiff" in text for text in programs) == sum("drawing.png" in text for text in programs) == 3
    assert not any("holiday" in text for text in programs)


def test_options_of_the_demo(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    """The options of the pair are fields of the form; those that differ from their defaults are sent."""
    page.goto("/")
    use_key(page, site.account(credits=3))
    choose_in_demo(page, sample("heic"), "photo.heic", "jpeg")
    page.locator("#option-list summary").click()
    declared = site.request("GET", "/formats/heic/jpeg").json()["data"]["options"]["properties"]
    fields = page.locator("#option-fields").locator("input, select")
    expect(fields).to_have_count(len(declared))
    quality = page.get_by_label("quality", exact=False).first
    assert quality.get_attribute("max") == "100"
    expect(quality).to_have_value(str(declared["quality"]["default"]))
    quality.fill("7")
    expect(page.locator("#options-set")).to_have_text("(1 set)")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        keep(page, f"landing-options-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert violations(page) == []
    convert_in_demo(page)
    expect(page.locator("#message")).to_have_text("Done: heic to jpeg.")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download the result").click()
    assert saved.value.path().read_bytes() == site.convert(sample("heic"), "jpeg", quality="7").content
    expect(page.locator('.sample[data-language="curl"]').first).to_contain_text("-F quality=7")
    page.get_by_label("Convert to").select_option("webp")
    expect(quality).to_have_value("7")
    choose_in_demo(page, sample("pdf"), "page.pdf", "png")
    password = page.get_by_label("password", exact=False)
    assert password.get_attribute("type") == "password"
    password.fill("not needed")
    convert_in_demo(page)
    expect(page.locator("#message")).to_have_text("Done: pdf to png.")
    assert not any("not needed" in text for text in page.locator(".sample code").all_text_contents())


def test_warnings_of_the_demo(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    use_key(page, site.account(credits=1))
    convert_in_demo(page, translucent_png(), "drawing.png", "jpeg")
    expect(page.locator("#warnings")).to_contain_text("(alpha_flattened)")
    keep(page, "landing-warnings")
    assert violations(page) == []


def test_the_demo_shows_what_is_in_the_file(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    use_key(page, site.account(credits=1))
    choose_in_demo(page, document("pages", 3), "pages", "jpeg")  # whose name does not show its format
    expect(page.locator("#inspection")).to_have_text(
        re.compile(r"^pdf, \d+ . \d+ pixels, 3 pages. To jpeg: text, vectors, layers or pages become pixels; the ")
    )
    expect(page.locator("#option-list")).to_be_visible()
    keep(page, "landing-inspected")
    assert violations(page) == []
    page.locator("#option-list summary").click()
    page.locator("#option-pages").fill("all")
    convert_in_demo(page)
    expect(page.locator("#after")).to_have_text("A ZIP archive of 3 files")
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download the result").click()
    assert saved.value.suggested_filename == "pages.zip"
    assert len(ZipFile(saved.value.path()).namelist()) == 3
    expect(page.locator("#balance")).to_have_text("0 credits")


def test_demo_shows_errors(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    use_key(page, "cvd_live_none")
    expect(page.locator("#message")).to_contain_text("invalid_api_key")
    use_key(page, site.account(credits=1))
    convert_in_demo(page, b"no picture at all", "photo.png", "jpeg")
    expect(page.locator("#message")).to_contain_text("invalid_file_type")
    keep(page, "landing-refused")
    assert violations(page) == []


def test_registration_to_first_conversion(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    page.goto("/register")
    page.get_by_label("Email address").fill("ann@example.test")
    page.get_by_label("Name of your application").fill("Ann's app")
    page.get_by_role("button", name="Send the email").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Check your email")
    keep(page, "register-sent")
    assert violations(page) == []
    (link,) = re.findall(r"^http://localhost:\d+/api/v1/verify\?token=\w+$", email_to(site, "ann@example.test"), re.M)
    page.goto(link)
    page.get_by_role("button", name="Show my API key").click()
    shown = page.get_by_label("API key", exact=True).and_(page.locator("input"))
    expect(shown).to_have_value(re.compile(r"cvd_live_\w{38}"))
    assert "token" not in page.url
    keep(page, "verify-shown")
    assert violations(page) == []
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download as .env").click()
    assert saved.value.path().read_text() == f"CONVERTD_API_KEY={shown.input_value()}\n"
    page.get_by_role("link", name="Convert a file in the browser").click()
    expect(page.locator("#balance")).to_have_text("50 credits")
    convert_in_demo(page, sample("heic"), "photo.heic", "jpeg")
    expect(page.locator("#balance")).to_have_text("49 credits")


def test_used_verification_link(page: Page) -> None:
    page.goto(f"/developers/verify#token={'ab' * 32}")
    page.get_by_role("button", name="Show my API key").click()
    expect(page.get_by_role("status")).to_contain_text("has been used")
    expect(page.get_by_role("link", name="Send a new email")).to_be_visible()


def test_purchase(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    sign_in(page, site.account(credits=0))
    expect(page.locator("#credits")).to_have_text("0")
    page.get_by_role("button", name="Buy starter").click()
    expect(page.get_by_text("This is a simulation")).to_be_visible()
    keep(page, "checkout")
    assert violations(page) == []
    page.get_by_role("button", name="Pay").click()
    expect(page.locator("#credits")).to_have_text("500")


def test_usage_and_errors_on_the_dashboard(
    page: Page, browser: Browser, site: Running, keep: Callable[[Page, str], None]
) -> None:
    key = site.account()
    auth = {"Authorization": f"Bearer {key}"}
    for target in ("jpeg", "jpeg", "webp"):
        assert site.convert(sample("png"), target, headers=auth).status_code == 200
    assert site.convert(b"\x89PNG\r\n\x1a\n" + bytes(99), "jpeg", headers=auth).status_code == 500
    sign_in(page, key)
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        keep(page, f"dashboard-{scheme}-signed-in")
        assert violations(page) == []
    chart = page.locator(".chart")
    heights = [float(chart.locator(f"rect.{name}").get_attribute("height") or 0) for name in ("done", "failed")]
    assert heights[0] == 3 * heights[1] > 0
    expect(page.get_by_role("listitem").first).to_have_text("png → jpeg: 3")
    expect(page.get_by_role("row").filter(has_text="processing_failed").first).to_contain_text("500")
    assert page.get_by_role("row").filter(has_text="POST /convert").count() == 4
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download CSV").click()
    assert saved.value.path().read_text().splitlines()[1].split(",")[1:4] == ["4", "1", "3"]


def test_keys_on_the_dashboard(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    sign_in(page, site.account())
    page.get_by_label("Name of the new key").fill("second")
    page.get_by_role("button", name="Create an API key").click()
    made = page.get_by_role("textbox", name="API key").input_value()
    assert site.request("GET", "/account", made).status_code == 200
    keep(page, "dashboard-new-key")
    assert violations(page) == []
    row = page.get_by_role("row").filter(has_text="second")
    row.get_by_text("Revoke…").click()
    row.get_by_role("button", name="Revoke now").click()
    expect(row).to_have_count(0)
    assert site.request("GET", "/account", made).status_code == 401
    page.get_by_role("button", name=re.compile("Replace")).click()
    assert site.request("GET", "/account", page.get_by_role("textbox", name="API key").input_value()).status_code == 200


def test_session_survives_a_link_from_another_site(page: Page, site: Running) -> None:
    sign_in(page, site.account(credits=7))
    port = urlsplit(site.url).port
    page.route(
        "http://elsewhere.test/",
        lambda route: route.fulfill(
            content_type="text/html", body=f'<a href="http://localhost:{port}/dashboard?purchase=pur_1">back</a>'
        ),
    )
    page.goto("http://elsewhere.test/")
    page.get_by_role("link", name="back").click()
    expect(page.locator("#credits")).to_have_text("7")


def test_keyboard_navigation(page: Page, site: Running) -> None:
    page.goto("/dashboard")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type(site.account(credits=2))
    page.keyboard.press("Enter")
    expect(page.locator("#credits")).to_have_text("2")


def test_search_for_a_format(page: Page, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    page.get_by_label("Find a format").fill("heif to webp")
    rows = page.locator("#matrix tbody tr:visible")
    expect(rows).to_have_count(1)
    expect(rows.first.locator("td.highlighted")).to_contain_text("yes")
    page.get_by_label("Find a format").fill("docx")
    expect(page.get_by_text("No matching format")).to_be_visible()


def test_search_in_the_docs(page: Page) -> None:
    page.goto("/docs")
    page.get_by_text("Go", exact=True).click()
    page.reload()
    expect(page.locator('#quickstart .sample[data-language="Go"]')).to_be_visible()
    page.get_by_label("Search the docs").fill("idempotency-key")
    expect(page.locator("#repeating")).to_be_visible()
    expect(page.locator("#quickstart")).to_be_hidden()


def test_pages_without_javascript(browser: Browser, site: Running) -> None:
    context = browser.new_context(java_script_enabled=False, base_url=site.url)
    page = context.new_page()
    page.goto("/docs")
    expect(page.locator('#quickstart .sample[data-language="curl"]')).to_be_visible()
    page.get_by_text("PHP", exact=True).click()
    expect(page.locator('#quickstart .sample[data-language="PHP"]')).to_be_visible()
    sign_in(page, site.account(credits=5))
    page.goto("/")
    expect(page.locator("#trial")).to_be_hidden()
    expect(page.locator("#matrix")).to_be_visible()
    context.close()
