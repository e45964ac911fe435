"""The pages of tools, and many files, in a real browser. Screenshots are saved in the folder given by --screenshots."""

import re
from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import pytest
from playwright.sync_api import Browser, FilePayload, Locator, Page, Request, expect

from tests.support.browser import sign_in, use_account, violations
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document, opened, page_texts
from tests.support.servers.in_process import Running

pytestmark = pytest.mark.slow

Save = Callable[[Page, str], None]
Point: TypeAlias = tuple[float, ...]
"""Pixels from the left and the top of the screen."""


def payload(name: str, content: bytes) -> FilePayload:
    return FilePayload(name=name, mimeType="", buffer=content)


def saved_pdf(page: Page) -> bytes:
    with page.expect_download() as found:
        page.get_by_role("link", name="Download").click()
    return found.value.path().read_bytes()


def test_pages_are_organized_by_keyboard(page: Page, site: Running, keep: Save) -> None:
    """Pages of a PDF and an image are moved, turned, repeated and deleted; the run costs one credit."""
    sign_in(page, site.account(credits=3))
    page.goto("/tools/arrange-pdf")
    page.locator("#file").set_input_files([payload("a.pdf", document("a", 3)), payload("b.png", sample("png"))])
    pages = page.locator("#files > li")
    expect(pages).to_have_count(4)
    pages.nth(2).get_by_role("button").focus()
    page.keyboard.press("Alt+ArrowLeft")
    page.keyboard.press("Alt+ArrowLeft")
    expect(page.locator("#message")).to_have_text("Page 1 of 4.")
    page.get_by_role("button", name="Rotate").press("Enter")
    page.get_by_role("button", name="Insert blank").press("Enter")
    pages.nth(2).get_by_role("button").focus()
    page.keyboard.press("Delete")
    assert [text.strip() for text in pages.all_inner_texts()] == [
        "1. a.pdf, page 3",
        "2. Blank page",
        "3. a.pdf, page 2",
        "4. b.png",
    ]
    expect(pages.locator("canvas")).to_have_count(3)
    expect(page.locator("#cost")).to_have_text("Costs 1 credit of 3.")
    page.locator("#run").press("Enter")
    expect(page.locator("#result-name")).to_have_text("arranged.pdf")
    page.locator("#run").click(force=True)  # nothing has changed
    expect(page.locator("#access strong")).to_have_text("2 credits")
    keep(page, "tool-organized")
    assert violations(page) == []
    made = saved_pdf(page)
    assert [one.get("/Rotate", 0) for one in opened(made).pages] == [90, 0, 0, 0]
    assert [text.strip() for text in page_texts(made)] == ["a page 3", "", "a page 2", ""]


@pytest.fixture
def phone(browser: Browser, site: Running) -> Iterator[Page]:
    """A page on a screen that is touched."""
    url = site.url.replace("127.0.0.1", "localhost")
    context = browser.new_context(base_url=url, has_touch=True, viewport={"width": 390, "height": 844})
    yield context.new_page()
    context.close()


def swipe(page: Page, start: Point, end: Point) -> None:
    """Moves a finger over the screen."""
    session = page.context.new_cdp_session(page)
    steps = [tuple(a + (b - a) * step / 5 for a, b in zip(start, end, strict=True)) for step in range(6)]
    for number, (x, y) in enumerate(steps):
        kind = "touchMove" if number else "touchStart"
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def place(element: Locator, x: float = 0.5, y: float = 0.5) -> Point:
    """A point of an element, from its shares of the width and the height."""
    box = element.bounding_box()
    assert box
    return box["x"] + x * box["width"], box["y"] + y * box["height"]


def test_pages_are_dragged_by_finger_and_mouse(phone: Page, site: Running) -> None:
    """A finger drags a page by its grip, and scrolls elsewhere. A mouse drags it anywhere, and a click selects it."""
    page = phone
    sign_in(page, site.account(credits=1))
    page.goto("/tools/arrange-pdf")
    page.locator("#file").set_input_files(payload("a.pdf", document("a", 12)))
    pages = page.locator("#files > li")
    expect(pages).to_have_count(12)
    pages.first.scroll_into_view_if_needed()
    swipe(page, place(pages.nth(0).locator(".grip")), place(pages.nth(2), 0.9))
    order = [f"{number + 1}. a.pdf, page {one}" for number, one in enumerate((2, 3, 1, 4))]
    expect(pages.locator(".sheet-name")).to_have_text([*order, *[re.compile("a.pdf")] * 8])
    before = page.evaluate("scrollY")
    swipe(page, place(pages.nth(4)), place(pages.nth(1)))
    page.wait_for_function("before => scrollY > before", arg=before)
    pages.first.scroll_into_view_if_needed()
    page.mouse.move(*place(pages.nth(2)))
    page.mouse.down()
    page.mouse.move(*place(pages.nth(0), 0.1), steps=4)
    page.mouse.up()
    order = [f"{number + 1}. a.pdf, page {one}" for number, one in enumerate((1, 2, 3, 4))]
    expect(pages.locator(".sheet-name")).to_have_text([*order, *[re.compile("a.pdf")] * 8])
    expect(page.locator('[aria-pressed="true"]')).to_have_count(0)
    pages.nth(1).get_by_role("button").click()
    expect(page.locator('[aria-pressed="true"]')).to_have_count(1)


def test_tools_are_found_by_synonyms(page: Page) -> None:
    page.goto("/")
    found = page.locator(".tools li:visible a")
    for query, name in (("combine", "Merge PDFs"), ("make smaller", "Compress a PDF")):
        page.locator("#tool-search").fill(query)
        assert name in found.all_inner_texts()
    page.locator("#tool-search").fill("word to pdf")
    expect(found).to_have_text("Convert DOCX to PDF")
    found.click()
    expect(page.locator("#target")).to_have_value("pdf")
    page.locator("#tool-search").fill("nothing of the kind")
    expect(page.locator("#no-tool")).to_be_visible()


@pytest.mark.long
@pytest.mark.parametrize("pointer", ["page", "phone"])
def test_areas_are_chosen_on_the_page(
    request: pytest.FixtureRequest, site: Running, keep: Save, pointer: Literal["page", "phone"]
) -> None:
    page: Page = request.getfixturevalue(pointer)
    sign_in(page, site.account(credits=1))
    page.goto("/tools/redact-pdf")
    page.locator("#file").set_input_files([payload("a.pdf", document("a", 2))])
    page.get_by_role("button", name="Choose boxes on the page").click()
    page.get_by_label("Page", exact=True).fill("2")
    page.keyboard.press("Tab")
    frame = page.locator("#picker .pair")
    expect(frame).to_be_visible()
    frame.scroll_into_view_if_needed()
    if pointer == "phone":
        swipe(page, place(frame, 0.01, 0.01), place(frame, 0.99, 0.99))
    else:
        page.mouse.move(*place(frame, 0.01, 0.01))
        page.mouse.down()
        page.mouse.move(*place(frame, 0.99, 0.99), steps=3)
        page.mouse.up()
    page.get_by_role("button", name="Add this area").click()
    keep(page, f"tool-redacted-{pointer}")
    assert violations(page) == []
    page.locator("#run").click()
    expect(page.locator("#result")).to_be_visible()
    assert [text.strip() for text in page_texts(saved_pdf(page))] == ["a page 1", ""]


def tab_to(page: Page, id: str) -> None:
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == id:
            return
    raise AssertionError(f"#{id} is not reached by the key Tab")


@pytest.mark.long
@pytest.mark.parametrize("by", ["mouse", "keyboard"])
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark"), (1280, "dark"), (390, "light")])
def test_twenty_mixed_files_become_one_pdf(
    browser: Browser, site: Running, keep: Save, width: int, scheme: Literal["light", "dark"], by: str
) -> None:
    """Two clicks, run and download, if the files are dropped; four with the dialog to choose them."""
    context = browser.new_context(base_url=site.url.replace("127.0.0.1", "localhost"), color_scheme=scheme)
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 844})
    sign_in(page, site.account(credits=20))
    page.goto("/tools/arrange-pdf")
    kinds = ("png", "jpeg", "heic", "pdf", "txt")
    content = {kind: b"words" if kind == "txt" else sample(kind) for kind in kinds}
    files = [payload(f"{number}.{kinds[number % 5]}", content[kinds[number % 5]]) for number in range(20)]
    with page.expect_file_chooser() as chooser:
        if by == "mouse":
            page.locator("#drop").click()
        else:
            tab_to(page, "file")
            page.keyboard.press("Space")
    chooser.value.set_files(files)
    expect(page.locator("#files > li")).to_have_count(20)
    expect(page.locator("#cost")).to_have_text("Costs 5 credits of 20.")
    if by == "mouse":
        page.locator("#run").click()
    else:
        tab_to(page, "run")
        page.keyboard.press("Enter")
    expect(page.locator("#result")).to_be_visible(timeout=120_000)
    keep(page, f"tool-twenty-{scheme}-{width}")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    if by == "mouse":
        made = saved_pdf(page)
    else:
        with page.expect_download() as found:
            page.keyboard.press("Enter")  # the link has the focus
        made = found.value.path().read_bytes()
    assert len(opened(made).pages) == 20
    expect(page.locator("#access strong")).to_have_text("15 credits")
    context.close()


@pytest.mark.long
def test_sixty_files(page: Page, site: Running, keep: Save) -> None:
    """Few requests, low rows, the suggested targets, and nothing is lost by a reload."""
    use_account(page, site.account(credits=60))
    sent: list[Request] = []
    page.on("request", lambda request: sent.append(request))
    kinds = ("png", "jpeg", "heic", "webp", "svg", "pdf")
    page.locator("#file").set_input_files(
        [payload(f"{number:02}.{kinds[number % 6]}", sample(kinds[number % 6])) for number in range(60)]
    )
    rows = page.locator("#files > li")
    expect(rows).to_have_count(60)
    page.wait_for_load_state("networkidle")
    assert len([request for request in sent if not request.url.startswith("blob:")]) <= 45
    assert all(row.evaluate("row => row.offsetHeight") <= 70 for row in rows.all())
    page.locator("#convert").click()
    expect(page.locator("#total")).to_contain_text("60 files", timeout=120_000)
    assert len([request for request in sent if request.url.endswith("/try/convert")]) < 60 + 45
    assert {text.rpartition("→ ")[2].partition(",")[0] for text in page.locator(".sizes").all_inner_texts()} == {
        "webp",
        "jpeg",
        "png",
        "docx",
    }
    keep(page, "landing-sixty")
    page.reload()
    expect(page.locator(".recent li")).to_have_count(5)
    page.goto("/dashboard/files")
    expect(page.locator(".stored li")).to_have_count(24)
    assert violations(page) == []
