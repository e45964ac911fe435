"""The pages in a real browser. Screenshots are saved in the folder given by --screenshots."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.support.browser import add_file, sign_in, violations
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from tests.support.servers.outbox import email_to
from web.docs.docs_contents import DOCS_PAGES

pytestmark = pytest.mark.slow

DOCS = tuple(page.path for page in DOCS_PAGES if page.name != "options/more")
SAMPLED_DOCS = ("/docs", "/docs/options/size")  # the others with --long
PAGES = (
    *("/", *SAMPLED_DOCS, *(pytest.param(path, marks=pytest.mark.long) for path in DOCS if path not in SAMPLED_DOCS)),
    *("/register", "/developers/verify", "/status", "/dashboard", "/checkout/none", "/nothing"),
)
WIDTHS = (1280, 360)  # pixels
MAX_BYTES = 230_000  # a page with its assets, uncompressed
REPEATED = "tbody tr:nth-child(n+3)"  # rows that are checked once, at the first width in light colors


@pytest.mark.parametrize("path", PAGES)
def test_accessibility_size_and_narrow_screens(
    browser: Browser, site: Running, keep: Callable[[Page, str], None], path: str
) -> None:
    """No violations, in light and dark and on a phone, no external requests, MAX_BYTES, no horizontal scrolling."""
    context = browser.new_context(color_scheme="light")
    page = context.new_page()
    sizes: dict[str, int] = {}
    page.on("response", lambda response: sizes.update({response.url: len(response.body())}))
    page.goto(f"{site.url}{path}")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        keep(page, f"{path.strip('/').replace('/', '-') or 'landing'}-light-{width}")
        page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
        assert violations(page, exclude="" if width == WIDTHS[0] else REPEATED) == []
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page.set_viewport_size({"width": WIDTHS[0], "height": 800})
    page.emulate_media(color_scheme="dark")
    keep(page, f"{path.strip('/').replace('/', '-') or 'landing'}-dark-{WIDTHS[0]}")
    assert violations(page, "color-contrast", exclude=REPEATED) == []
    assert {urlsplit(url).netloc for url in sizes} == {urlsplit(site.url).netloc}
    assert sum(sizes.values()) < MAX_BYTES
    context.close()


def test_copy_buttons_do_not_cover_the_code_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto("/")
    button, code = (page.locator(f"pre {part}").first.bounding_box() for part in (".copy", "code"))
    assert button
    assert code
    assert button["y"] + button["height"] <= code["y"]


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
    add_file(page, sample("heic"), "photo.heic", "jpeg")
    page.get_by_role("button", name="Convert 1 file").click()
    expect(page.locator("#balance")).to_have_text("49 credits")


def test_used_verification_link(page: Page) -> None:
    page.goto(f"/developers/verify#token={'ab' * 32}")
    page.get_by_role("button", name="Show my API key").click()
    expect(page.get_by_role("status")).to_contain_text("has been used")
    expect(page.get_by_role("link", name="Send a new email")).to_be_visible()


def test_keyboard_navigation(page: Page, site: Running) -> None:
    page.goto("/dashboard")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.get_by_label("Email address")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.type(site.account(credits=2))
    page.keyboard.press("Enter")
    expect(page.locator("#credits")).to_have_text("2")


def test_search_for_a_format(page: Page, keep: Callable[[Page, str], None]) -> None:
    page.goto("/")
    search, rows = page.get_by_label("Find a format"), page.locator("#formats-table tbody tr:visible")
    search.fill("heif to webp")
    expect(rows).to_have_count(1)
    expect(rows.locator(".found")).to_have_text(["heic", "webp"])
    search.fill("svg to txt")
    expect(rows.locator(".found")).to_have_text(["svg", "txt"])
    search.fill("heic to txt")
    expect(page.get_by_text("No matching format")).to_be_visible()


def test_every_format_is_shown(page: Page) -> None:
    """Nothing in the table is behind a scroll bar, on a phone neither."""
    page.goto("/")
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 800})
        sizes = page.locator("#formats .table").evaluate(
            "box => [box.scrollHeight - box.clientHeight, box.scrollWidth - box.clientWidth]"
        )
        assert sizes == [0, 0]


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
    expect(page.locator("#formats-table")).to_be_visible()
    context.close()
