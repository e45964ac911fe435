"""The dashboard in a real browser."""

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from tests.support.browser import sign_in, violations
from tests.support.samples.generated import sample
from tests.support.servers.in_process import Running
from tests.support.servers.mail_server import email_to

pytestmark = pytest.mark.slow

DESK, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=360, height=800)


def test_purchase(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    sign_in(page, site.account(credits=0))
    expect(page.locator("#credits")).to_have_text("0")
    expect(page.locator("#purchases")).to_have_count(0)
    page.get_by_role("button", name="Buy starter").click()
    expect(page.get_by_text("This is a simulation")).to_be_visible()
    keep(page, "checkout")
    assert violations(page) == []
    page.get_by_label("Code").fill("wrong")
    page.get_by_role("button", name="Pay").click()
    expect(page.get_by_role("alert")).to_contain_text("not the code")
    assert violations(page) == []
    page.get_by_label("Code").fill(site.checkout_code)
    page.get_by_role("button", name="Pay").click()
    expect(page.locator("#credits")).to_have_text("500")
    expect(page.get_by_role("status")).to_contain_text("500 credits were added to your account")
    row = page.get_by_role("row").filter(has_text="5.00 EUR")
    expect(row).to_contain_text("starter")
    expect(row).to_contain_text("paid")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        keep(page, f"dashboard-paid-{size['width']}")
        assert violations(page) == []
    row.get_by_role("link", name="Receipt").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Receipt")
    expect(page.get_by_role("row", name="Amount")).to_contain_text("5.00 EUR")
    expect(page.get_by_role("row", name="Item")).to_contain_text("500 conversion credits (pack starter)")
    keep(page, "receipt")
    assert violations(page) == []
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.emulate_media(media="print")
    expect(page.get_by_role("banner")).to_be_hidden()
    expect(page.get_by_role("row", name="Amount")).to_be_visible()


def test_nothing_is_said_after_a_cancelled_purchase(page: Page, site: Running) -> None:
    sign_in(page, site.account(credits=3))
    page.get_by_role("button", name="Buy starter").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#credits")).to_have_text("3")
    expect(page.get_by_role("status")).to_have_count(0)
    expect(page.locator("#purchases")).to_have_count(0)


def test_usage_and_errors(page: Page, browser: Browser, site: Running, keep: Callable[[Page, str], None]) -> None:
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
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download CSV").click()
    assert saved.value.path().read_text().splitlines()[1].split(",")[1:4] == ["4", "1", "3"]


def test_dashboard_on_a_phone(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    """The newest days and every button are on the screen, without scrolling sideways."""
    key = site.account()
    site.request("POST", "/account/keys", key, json={"name": "a second key"})
    site.convert(sample("png"), "jpeg", headers={"Authorization": f"Bearer {key}"})
    page.set_viewport_size(PHONE)
    sign_in(page, key)
    keep(page, "dashboard-phone")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    shown = [page.locator(".chart rect.done").last, *page.get_by_role("button").all()]
    assert len(shown) > 8
    for element in shown:
        box = element.bounding_box()
        assert box
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 360
    page.get_by_label("Revoke").first.click()
    revoke = page.get_by_role("button", name="Revoke now").first.bounding_box()
    assert revoke
    assert revoke["x"] + revoke["width"] <= 360


def test_keys_on_the_dashboard(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    sign_in(page, site.account())
    page.get_by_label("Name of the new key").fill("second")
    page.get_by_role("button", name="Create an API key").click()
    made = page.get_by_role("textbox", name="API key").input_value()
    assert site.request("GET", "/account", made).status_code == 200
    with page.expect_download() as saved:
        page.get_by_role("link", name="Download as .env").click()
    assert saved.value.path().read_text() == f"CONVERTD_API_KEY={made}\n"
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status").filter(has_text=re.compile("Copied|selected"))).to_be_visible()
    keep(page, "dashboard-new-key")
    assert violations(page) == []
    page.reload()
    expect(page.get_by_role("textbox", name="API key")).to_have_count(0)
    expect(page.get_by_role("row").filter(has_text="second")).to_have_count(1)
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
    back = f'<a href="http://localhost:{port}/dashboard?purchase=pur_1">back</a>'
    page.route("http://elsewhere.test/", lambda route: route.fulfill(content_type="text/html", body=back))
    page.goto("http://elsewhere.test/")
    page.get_by_role("link", name="back").click()
    expect(page.locator("#credits")).to_have_text("7")


def test_webhooks_on_the_dashboard(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    """The receiver is an address that is never reached."""
    sign_in(page, site.account())
    page.get_by_role("link", name="Webhooks", exact=True).click()
    page.get_by_role("textbox", name="URL").fill(
        "https://hooks.invalid/a/rather/long/path/of/a/receiver?with=a&long=query"
    )
    page.get_by_role("button", name="Create", exact=True).click()
    assert page.get_by_role("textbox", name="Secret").input_value().startswith("whsec_")
    with page.expect_navigation():
        page.get_by_role("button", name=re.compile("Send a test")).click()
    deliveries = page.get_by_role("row").filter(has_text="test")
    for _ in range(20):
        page.reload()
        if deliveries.count():
            break
        page.wait_for_timeout(500)
    expect(deliveries.first).to_contain_text("unreachable")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        keep(page, f"dashboard-webhooks-{size['width']}")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    page.get_by_role("button", name=re.compile("Redeliver")).first.click()
    page.get_by_text("Delete…").click()
    page.get_by_role("button", name="Delete now").click()
    expect(page.get_by_text("hooks.invalid")).to_have_count(0)


def test_jobs_on_the_dashboard(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    key = site.account()
    headers = {"Prefer": "respond-async, wait=60"}
    contents = {"done": sample("png"), "broken": b"\x89PNG\r\n\x1a\n" + bytes(99), "waits": sample("png")}
    for tag, content in contents.items():
        data = {"output_format": "webp", "tag": tag}
        site.request("POST", "/convert", key, files={"file": ("a.png", content)}, data=data, headers=headers)
    sign_in(page, key)
    page.get_by_role("link", name="Jobs", exact=True).click()
    failed = page.get_by_role("row").filter(has_text="broken")
    expect(failed).to_contain_text("failed: ")
    expect(failed.get_by_role("link", name="About processing_failed")).to_have_text("corrupt_input")
    for size in (DESK, PHONE):
        page.set_viewport_size(size)
        keep(page, f"dashboard-jobs-{size['width']}")
        assert violations(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") == size["width"]
    page.emulate_media(color_scheme="dark")
    assert violations(page, "color-contrast") == []
    done = page.get_by_role("row").filter(has_text="done")
    with page.expect_download() as saved:
        done.get_by_role("link", name="Download").click()
    assert saved.value.suggested_filename == "a.webp"
    done.get_by_text("Delete…").click()
    done.get_by_role("button", name="Delete now").click()
    expect(done).to_have_count(0)


def test_sign_in_with_a_link(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    email = site.request("GET", "/account", site.account()).json()["data"]["email"]
    page.goto("/dashboard")
    assert violations(page) == []
    page.get_by_label("Email address").fill(email)
    page.get_by_role("button", name="Email a link").click()
    expect(page.get_by_role("status")).to_contain_text("within 15 minutes")
    keep(page, "sign-in-sent")
    (link,) = re.findall(r"http://localhost:\d+(/\S+)", email_to(site, email))
    page.goto(link)
    expect(page.get_by_label("Code")).to_be_hidden()
    assert "token" not in page.url
    keep(page, "sign-in-link")
    assert violations(page) == []
    page.get_by_role("button", name="Sign in to the dashboard").click()
    expect(page.get_by_role("banner")).to_contain_text(email)
    for path in ("/dashboard/jobs", "/dashboard/webhooks"):
        page.goto(path)
        expect(page.get_by_role("banner")).to_contain_text(email)
        expect(page.get_by_role("link", name="Get an API key")).to_have_count(0)
    page.get_by_role("button", name="Sign out").click()
    page.goto("/dashboard")
    expect(page.get_by_label("Email address")).to_be_visible()
    page.goto(link)
    page.get_by_role("button", name="Sign in to the dashboard").click()
    expect(page.get_by_role("alert")).to_contain_text("has been used")


def test_requests_on_a_phone_open_and_have_pages(page: Page, site: Running, keep: Callable[[Page, str], None]) -> None:
    key = site.account()
    auth = {"Authorization": f"Bearer {key}"}
    for width in range(1000, 1012):
        assert site.convert(sample("png"), "webp", headers=auth, width=str(width)).status_code == 200
    page.set_viewport_size(DESK)
    sign_in(page, key)
    rows = page.locator("table.requests tbody tr")
    assert rows.filter(visible=True).count() == 12
    row = rows.filter(has_text="1011")
    row.get_by_text("POST /convert").click()
    expect(row.locator("dd").filter(has_text="1011")).to_be_visible()
    expect(row.get_by_role("link", name="not_enlarged")).to_be_visible()
    keep(page, "dashboard-request")
    assert violations(page) == []
    page.set_viewport_size(PHONE)
    expect(rows.filter(visible=True)).to_have_count(5)
    pages = page.locator(".card", has=page.locator("table.requests")).locator(".pages")
    expect(pages).to_contain_text("1 to 5 of 12")
    expect(pages.get_by_role("button", name="Previous")).to_be_disabled()
    for shown in ("6 to 10 of 12", "11 to 12 of 12"):
        pages.get_by_role("button", name="Next").click()
        expect(pages).to_contain_text(shown)
    expect(rows.filter(visible=True)).to_have_count(2)
    expect(pages.get_by_role("button", name="Next")).to_be_disabled()
    keep(page, "dashboard-request-phone")
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
