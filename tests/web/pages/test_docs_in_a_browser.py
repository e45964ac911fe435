"""The documentation in a real browser. Screenshots are saved in the folder given by --screenshots."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.samples.shares import share
from web.docs.docs_contents import DOCS_PAGES

pytestmark = pytest.mark.slow

MAX_SCREENS = 6
PATHS = [page.path for page in DOCS_PAGES if page.name != "options/more"]


def test_no_page_is_long(page: Page, keep: Callable[[Page, str], None], pytestconfig: pytest.Config) -> None:
    """At most 6 screens of a desktop, and nothing is wider than a phone. A third of the pages in each run."""
    for path in share(PATHS, pytestconfig, 3):
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(path)
        keep(page, f"{path.strip('/').replace('/', '-')}-1280")
        assert page.evaluate("document.documentElement.scrollHeight") <= MAX_SCREENS * 800, path
        page.set_viewport_size({"width": 360, "height": 800})
        keep(page, f"{path.strip('/').replace('/', '-')}-360")
        assert page.evaluate("document.documentElement.scrollWidth") == 360, path


@pytest.mark.parametrize(
    ("query", "anchors"),
    [
        ("exif", ("option-metadata", "recipe-location")),
        ("thumbnail", ("recipe-thumbnail", "option-width")),
        ("strip gps", ("recipe-location", "option-metadata")),
        ("under 200 kB", ("recipe-limit", "option-max_bytes")),
        ("serial numbers", ("recipe-location", "option-metadata")),
        ("idempotency-key", ("repeating",)),
        ("no_credits", ("no_credits",)),
        ("merge pdf", ("mergePdfs",)),
    ],
)
def test_search_finds_what_people_call_it(page: Page, query: str, anchors: tuple[str, ...]) -> None:
    page.goto("/docs/limits")
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
    for path, anchor in (("/docs", "recipe-location"), ("/docs/convert", "convert"), ("/docs/jobs", "createWebhook")):
        page.goto(f"{path}#{anchor}")
        bar, target = page.locator(".picker").bounding_box(), page.locator(f"#{anchor}").bounding_box()
        assert bar
        assert target
        assert bar["y"] == pytest.approx(0, abs=1)
        assert bar["height"] <= target["y"] < 200
    expect(page.locator("#createWebhook table").first).to_be_visible()


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
