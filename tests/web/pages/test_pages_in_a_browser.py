"""The pages and the documentation in a real browser. Screenshots are saved in the folder given by --screenshots."""

import json
import re
from collections.abc import Callable
from typing import Literal
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Route, expect

from engine.registry import load_registry
from storage.tables import accounts
from tests.support.browser import add_file, sign_in, violations
from tests.support.samples.generated import sample
from tests.support.samples.pairs import every, share
from tests.support.servers.in_process import Running
from tests.support.servers.mail_server import email_to
from web.docs.docs_contents import DOCS_PAGES
from web.site.console import CONSOLE_PATH
from web.site.pages import STATIC_FOLDER, tool_page

pytestmark = pytest.mark.slow
DOCS = tuple(page.path for page in DOCS_PAGES if page.name != "options/more")
SAMPLED_DOCS = ("/docs", "/docs/options/size")  # the others with --long
PAGES = (
    *("/", *SAMPLED_DOCS, *(pytest.param(path, marks=pytest.mark.long) for path in DOCS if path not in SAMPLED_DOCS)),
    *every(2, ("/dashboard", "/developers/verify", "/register", "/status", "/checkout/none", "/nothing")),
)
WIDTHS = (1280, 360)  # pixels
MAX_BYTES = 230_000  # a page with its assets, uncompressed
REPEATED = "tbody tr:nth-child(n+3)"  # rows that are checked once, at the first width in light colors
MAX_SCREENS = 6
_SEARCHES = {  # anchors that they find
    "exif": ("option-metadata", "recipe-location"),
    "thumbnail": ("recipe-thumbnail", "option-width"),
    "strip gps": ("recipe-location", "option-metadata"),
    "under 200 kB": ("recipe-limit", "option-max_bytes"),
    "serial numbers": ("recipe-location", "option-metadata"),
    "idempotency-key": ("repeating",),
    "no_credits": ("no_credits",),
    "merge pdf": ("pdfMerge",),
}
_CONSOLE_OPERATION = "/convert/json"
PATHS = [page.path for page in DOCS_PAGES if page.name != "options/more"]


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


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("part", ["tools", "account", "public", "docs"])
def test_every_page_at_three_sizes(
    browser: Browser, site: Running, keep: Callable[[Page, str], None], part: str, scheme: Literal["light", "dark"]
) -> None:
    """No violations, and nothing to scroll sideways: pages of tools, of accounts with data, of admins, and others."""
    context = browser.new_context(color_scheme=scheme, base_url=site.url.replace("127.0.0.1", "localhost"))
    page = context.new_page()
    page.set_default_timeout(30_000)
    paths = ["/", "/register", "/status", "/nothing", "/developers/verify", "/dashboard", "/checkout/none"]
    if part == "docs":
        paths = [*DOCS]
    elif part == "tools":
        paths = [tool_page(tool) for tool in load_registry().tools.values()]
    elif part == "account":
        paths = _account_with_data(page, site)
    for path in paths:
        page.goto(path)
        for width in (1280, 768, 390):
            page.set_viewport_size({"width": width, "height": 844})
            keep(page, f"{part}-{path.strip('/').replace('/', '-')[:40] or 'start'}-{scheme}-{width}")
            page.evaluate("document.querySelectorAll('details').forEach(details => { details.open = true; })")
            found = violations(page, *(("color-contrast",) if scheme == "dark" else ()), exclude=REPEATED)
            assert found == [], (path, width)
            assert page.evaluate("document.documentElement.scrollWidth") == width, path
    context.close()


def _account_with_data(page: Page, site: Running) -> list[str]:
    """Signs in as an admin with files, jobs, a webhook and a purchase. Returns the paths of the pages about them."""
    key = site.account(credits=50, purchased=1)
    email = site.request("GET", "/account", key).json()["data"]["email"]
    account = site.database.run_blocking(accounts.find, email)
    assert account is not None
    site.database.run_blocking(lambda transaction: accounts.change(transaction, account.id, role="admin"))
    headers = {"Authorization": f"Bearer {key}", "Prefer": "respond-async"}
    content = (*(sample(kind) for kind in ("png", "pdf", "heic")), sample("png")[:60])
    for number, one in enumerate(content):
        site.convert(one, "webp", tag=f"order-{number}", name=f"a long name of a file {number}", headers=headers)
    site.request("POST", "/webhooks", key, json={"url": "https://app.example/a/hook"})
    sign_in(page, key)
    page.get_by_role("button", name="Buy starter").click()
    page.get_by_label("Code").fill(site.checkout_code)
    page.get_by_role("button", name="Pay").click()
    receipt = page.get_by_role("link", name="Receipt").first.get_attribute("href")
    own = f"/dashboard/admin/accounts/{account.id}"
    page.goto(own)
    page.locator('input[name="max_file_size"]').fill("500MB")
    page.get_by_role("button", name="Save").click()
    expect(page.locator('input[name="max_file_size"]')).to_have_value(str(500 << 20))
    parts = ("", "/files", "/jobs", "/webhooks", "/admin")
    return ["/", *(f"/dashboard{part}" for part in parts), own, str(receipt)]


def test_copy_buttons_do_not_cover_the_code_on_a_phone(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 700})
    page.goto("/")
    button, code = (page.locator(f"figure pre {part}").first.bounding_box() for part in (".copy", "code"))
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
    page.get_by_role("button", name="Convert files in the browser").click()
    expect(page.locator("#access strong")).to_have_text("50 credits")
    add_file(page, sample("heic"), "photo.heic", "jpeg")
    page.get_by_role("button", name="Convert 1 file").click()
    expect(page.locator("#access strong")).to_have_text("49 credits")


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


def test_no_page_is_long(page: Page, keep: Callable[[Page, str], None], pytestconfig: pytest.Config) -> None:
    """At most 6 screens of a desktop, and nothing is wider than a phone. A sixth of the pages in each run."""
    for path in share(PATHS, pytestconfig, 6):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(path)
        keep(page, f"{path.strip('/').replace('/', '-')}-1280")
        assert page.evaluate("document.documentElement.scrollHeight") <= MAX_SCREENS * 800, path
        page.set_viewport_size({"width": 360, "height": 800})
        keep(page, f"{path.strip('/').replace('/', '-')}-360")
        assert page.evaluate("document.documentElement.scrollWidth") == 360, path


def test_search_finds_what_people_call_it(page: Page) -> None:
    page.goto("/docs/limits")
    for query, anchors in _SEARCHES.items():
        page.get_by_label("Search the docs").fill(query)
        results = page.locator("#results-list > li")
        for anchor in anchors:
            found = results.filter(has=page.locator(f'a[href$="#{anchor}"]'))
            expect(found).to_have_count(1)
            assert found.locator("mark").count() >= 1
        expect(page.locator("article")).to_be_hidden()


def test_a_result_leads_to_the_marked_words(page: Page, keep: Callable[[Page, str], None]) -> None:
    page.goto("/docs")
    search, status = page.get_by_label("Search the docs"), page.locator("#search-status")
    search.fill("snow")
    expect(status).to_have_text("Nothing found for “snow”. Try fewer or shorter words.")
    search.fill("serial numbers")
    expect(status).to_have_text(re.compile(r"^\d+ entr(y|ies) found\.$"))
    keep(page, "docs-search")
    page.locator('#results-list a[href$="#option-metadata"]').click()
    page.wait_for_url("**/docs/options/metadata?q=serial%20numbers#option-metadata")
    expect(page.locator("#option-metadata mark").first).to_have_text(re.compile("serial|numbers"))
    search.fill("anything")
    search.fill("")
    expect(page.locator("article")).to_be_visible()
    expect(page.locator("#results")).to_be_hidden()


def test_the_language_of_the_examples_is_remembered(page: Page) -> None:
    page.goto("/docs")
    page.get_by_text("Go", exact=True).click()
    page.reload()
    expect(page.locator('#quickstart .sample[data-language="Go"]')).to_be_visible()
    expect(page.locator('#quickstart .sample[data-language="Go"] .word').first).to_have_text("package")


@pytest.mark.parametrize(
    ("old", "new"), [("convert", "convert"), ("no_credits", "errors"), ("option-fit", "options/size")]
)
def test_anchors_of_other_pages_lead_there(page: Page, old: str, new: str) -> None:
    page.goto(f"/docs#{old}")
    page.wait_for_url(f"**/docs/{new}#{old}")
    expect(page.locator(f"#{old}")).to_be_in_viewport()


@pytest.mark.parametrize("width", [1280, 360])
def test_named_entries_open_and_are_below_the_sticky_bar(page: Page, width: int) -> None:
    page.emulate_media(reduced_motion="reduce")
    page.set_viewport_size({"width": width, "height": 800})
    for path, anchor in (("/docs", "recipe-location"), ("/docs/convert", "convert"), ("/docs/jobs", "webhooksCreate")):
        page.goto(f"{path}#{anchor}")
        bar, target = page.locator(".picker").bounding_box(), page.locator(f"#{anchor}").bounding_box()
        assert bar
        assert target
        assert bar["y"] == pytest.approx(0, abs=1)
        assert bar["height"] <= target["y"] < 200
    expect(page.locator("#webhooksCreate table").first).to_be_visible()


def test_contents_show_where_the_reader_is(page: Page) -> None:
    """Open beside the text, closed above it; the section that is read is marked."""
    page.goto("/docs/limits")
    contents = page.get_by_role("navigation", name="Contents")
    expect(contents.locator('[aria-current="page"]')).to_have_text("Limits")
    expect(contents.locator('[aria-current="location"]')).to_have_text("Limits")
    page.set_viewport_size({"width": 1280, "height": 300})
    page.locator("#repeating").scroll_into_view_if_needed()
    page.mouse.wheel(0, 5000)
    expect(contents.locator('[aria-current="location"]')).to_have_text("Retries")
    page.set_viewport_size({"width": 360, "height": 800})
    entry = contents.get_by_role("link", name="Quickstart")
    expect(entry).to_be_hidden()
    page.get_by_text("Contents", exact=True).click()
    expect(entry).to_be_visible()


def test_the_console_sends_only_fields_that_are_filled_in(page: Page, site: Running) -> None:
    """The content security policy allows what Swagger UI does: the page fails the test if it refuses something."""

    def shorten(route: Route) -> None:
        """Leaves one operation of the document: Swagger UI takes seconds for all."""
        document = (response := route.fetch()).json()
        document["paths"] = {_CONSOLE_OPERATION: document["paths"][_CONSOLE_OPERATION]}
        route.fulfill(response=response, json=document)

    page.route("**/openapi.json", shorten)
    requests: list[Request] = []
    page.on("request", lambda request: requests.append(request) if request.method == "POST" else None)
    page.goto(f"{CONSOLE_PATH}#/Conversion/convertToJson")
    expect(page.locator("input[type=file]")).to_be_visible()
    page.get_by_role("button", name="Authorize").first.click()
    page.locator(".modal-ux input").fill(site.account(credits=7))
    page.locator(".modal-ux").get_by_role("button", name="Apply credentials").click()
    page.locator(".modal-ux .btn-done").click()
    form = page.locator(".opblock")
    form.locator("input[type=file]").set_input_files(STATIC_FOLDER / "mark.svg")
    expect(form.get_by_placeholder("output_format")).to_have_value("webp")
    expect(form.get_by_placeholder("webhook_url")).to_have_value("")
    form.get_by_role("button", name="Execute").click()
    result = form.locator(".live-responses-table")
    expect(result.locator(".response .response-col_status")).to_contain_text("200")
    answer = json.loads(result.locator("code").first.inner_text())
    assert (answer["data"]["input_format"], answer["data"]["output_format"]) == ("svg", "webp")
    assert answer["meta"]["credits_remaining"] == 6
    assert [urlsplit(request.url).path for request in requests] == [f"/api/v1{_CONSOLE_OPERATION}"]
