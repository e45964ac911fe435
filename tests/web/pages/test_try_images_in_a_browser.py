"""Options and images of the try-it form in a real browser. Screenshots are saved in the folder of --screenshots."""

import io
import re
from collections.abc import Callable
from typing import Literal
from zipfile import ZipFile

import pytest
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Locator, Page, Route, expect

from tests.support.browser import add_file, convert, download, open_options, state, use_account, violations
from tests.support.samples.generated import sample
from tests.support.samples.generated import saved as saved_image
from tests.support.servers.in_process import Running, eventually

pytestmark = pytest.mark.slow

_HINT_DELAY = 500.0  # ms; longer than the delay of an explanation

Save = Callable[[Page, str], None]


@pytest.mark.long
def test_twenty_photos_are_one_setting(page: Page, site: Running, keep: Save) -> None:
    """One width for all; one file is an exception. All results are saved as one ZIP."""
    use_account(page, site.account(credits=20))
    content = saved_image(Image.new("RGB", (1200, 900), (200, 80, 0)), "JPEG")
    photos = [FilePayload(name=f"{number:02}.jpg", mimeType="", buffer=content) for number in range(20)]
    page.locator("#file").set_input_files(photos)
    entries = page.locator("#files > li")
    expect(entries).to_have_count(20)
    page.locator("#target").select_option("png")
    page.locator("#all-width").fill("800")
    last = entries.last
    open_options(last)
    width = last.get_by_label("Width")
    expect(width).to_have_value("800")
    width.fill("400")
    expect(last.locator('[data-name="size"] .options-set')).to_have_text("(1 set)")
    page.locator("#all-width").fill("600")
    expect(width).to_have_value("400")
    page.locator("#all-width").fill("800")
    expect(page.locator("#cost")).to_have_text("Costs 20 credits of 20.")
    page.get_by_role("button", name="Convert 20 files").click()
    expect(page.locator("#total")).to_have_text(re.compile(r"^20 files: .* → .*, .*% (smaller|larger)"), timeout=60_000)
    expect(page.locator("#access strong")).to_have_text("0 credits")
    keep(page, "landing-twenty")
    page.set_viewport_size({"width": 360, "height": 800})
    keep(page, "landing-twenty-360")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    with page.expect_download() as found:
        page.get_by_role("button", name="Download all as ZIP").click()
    assert found.value.suggested_filename == "converted.zip"
    with ZipFile(found.value.path()) as archive:
        assert archive.testzip() is None
        widths = [Image.open(archive.open(name)).width for name in archive.namelist()]
        assert archive.namelist() == [f"{number:02}.png" for number in range(20)]
    assert widths == [800] * 19 + [400]


def test_options_of_another_format_leave_the_focus_where_it_is(page: Page, site: Running) -> None:
    """They arrive while somebody types."""
    page.goto("/")
    add_file(page, sample("jpeg"), "photo.jpg", "webp")
    expect(page.locator("#all-width")).to_be_attached()  # the options of WebP, which those of PNG are to replace
    delayed: list[Route] = []
    page.route("**/api/v1/formats/jpeg/png", lambda route: delayed.append(route))
    page.locator("#target").select_option("png")
    page.locator("#all-width").press_sequentially("8")
    delayed[0].continue_()
    expect(page.locator("#all-palette")).to_be_attached()
    page.keyboard.type("00")
    expect(page.locator("#all-width")).to_have_value("800")


def test_files_of_one_name_are_all_in_the_archive(page: Page, site: Running) -> None:
    use_account(page, site.account(credits=2))
    for _ in range(2):
        add_file(page, sample("png"), "ünï.png", "webp")
    convert(page)
    with page.expect_download() as found:
        page.get_by_role("button", name="Download all as ZIP").click()
    assert ZipFile(found.value.path()).namelist() == ["ünï.webp", "ünï (2).webp"]


def test_no_phone_scrolls_far_to_the_result(page: Page, site: Running) -> None:
    """From the top of the page to the result and its buttons: at most three screens."""
    page.set_viewport_size({"width": 360, "height": 800})
    page.goto("/")
    entry = add_file(page, photographed(), "photo.png", "jpeg")
    convert(page)
    expect(entry.get_by_role("link", name="Download")).to_be_visible()
    row = entry.locator(".file-row")
    assert row.evaluate("row => row.getBoundingClientRect().bottom + scrollY") <= 3 * 800


def photographed() -> bytes:
    """An image of 640 x 480 pixels with a gradient and noise."""
    image = Image.merge(
        "RGB", [Image.linear_gradient("L").resize((640, 480)), *[Image.effect_noise((640, 480), 40)] * 2]
    )
    return saved_image(image, "PNG")


@pytest.mark.long
def test_the_quality_shows_its_effect(page: Page, site: Running, keep: Save) -> None:
    """On a part of the first image, free of charge."""
    page.goto("/")
    key = site.account(credits=1)
    use_account(page, key)
    add_file(page, photographed(), "photo.png", "jpeg")
    caption = page.locator("#effect figcaption span").last
    expect(caption).to_have_text(re.compile(r"^jpeg: this part has \d"))
    before = caption.text_content()
    page.locator("#all-quality").fill("5")
    expect(caption).not_to_have_text(before or "")
    assert page.locator("#effect .after-picture").evaluate("image => [image.naturalWidth, image.naturalHeight]") == [
        320,
        320,
    ]
    slider = page.locator("#effect").get_by_role("slider", name="Original and result")
    slider.focus()
    page.keyboard.press("Home")
    keep(page, "landing-effect")
    page.locator("#target").select_option("png")
    expect(page.locator("#effect")).to_be_hidden()
    expect(page.locator("#access strong")).to_have_text("1 credit")


def test_a_part_is_chosen_by_dragging(page: Page, site: Running, keep: Save) -> None:
    use_account(page, site.account(credits=2))
    image = Image.new("RGB", (400, 200), "white")
    image.paste("red", (100, 50, 300, 150))
    entry = add_file(page, saved_image(image, "PNG"), "drawing.png", "bmp")
    open_options(entry)
    entry.get_by_role("button", name="Crop").click()
    entry.locator(".cropper").scroll_into_view_if_needed()
    box = entry.locator(".cropper .pair").bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + box["height"] * 0.75)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + box["height"] * 0.4)
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.mouse.up()
    expect(entry.locator(".cropper")).to_contain_text("Keeps 50% of the width and 50% of the height.")
    keep(page, "landing-crop")
    convert(page)
    expect(state(entry)).to_have_text("Done: png to bmp.")
    expect(page.locator('.sample[data-language="curl"]').first).to_contain_text("-F crop=25%,25%,50%,50%")
    made = Image.open(download(page, entry).path())
    assert made.size == (200, 100)
    assert made.getcolors() == [(20_000, (255, 0, 0))]
    entry.get_by_role("button", name="Crop").click()
    expect(entry.locator(".chosen")).to_have_attribute("style", re.compile("left: 25%; top: 25%; width: 50%"))
    entry.get_by_role("button", name="Keep the whole image").click()
    expect(page.locator("#convert")).to_have_text("Convert 1 changed file")
    expect(entry.locator(".chosen")).to_be_hidden()


def test_an_option_that_is_a_file(page: Page, site: Running) -> None:
    use_account(page, site.account(credits=2))
    entry = add_file(page, saved_image(Image.new("RGB", (400, 200), "white"), "PNG"), "drawing.png", "bmp")
    page.locator('[data-name="watermark"] > summary').click()
    logo = saved_image(Image.new("RGB", (100, 100), "red"), "PNG")
    mark = page.locator("#all-watermark")
    mark.set_input_files(FilePayload(name="logo.png", mimeType="", buffer=logo))
    convert(page)
    expect(state(entry)).to_have_text("Done: png to bmp.")
    assert len(Image.open(download(page, entry).path()).getcolors() or ()) > 1
    expect(page.locator("#convert")).to_have_text("Nothing has changed")
    page.locator("#target").select_option("png")
    expect(page.locator("#convert")).to_have_text("Convert 1 changed file")
    assert mark.evaluate("control => control.files[0].name") == "logo.png"


def compared(page: Page, site: Running) -> Locator:
    """Before and after of a red image of 2000 x 1000 pixels, which becomes gray."""
    use_account(page, site.account(credits=1))
    entry = add_file(page, saved_image(Image.new("RGB", (2000, 1000), "red"), "PNG"), "wide.png", "webp")
    page.locator('[data-name="color"] > summary').click()
    page.locator("#all-color_space").select_option("gray")
    convert(page)
    figure = entry.locator(".comparison")
    expect(figure).to_be_visible()
    figure.scroll_into_view_if_needed()
    return figure


def shown_colors(figure: Locator) -> list[str]:
    """The color at a quarter and at three quarters of the width: red before, gray after."""
    shown = Image.open(io.BytesIO(figure.locator(".pair").screenshot())).convert("RGB")
    pixels = [shown.getpixel((shown.width * part // 4, shown.height // 2)) for part in (1, 3)]
    return ["red" if pixel[0] > pixel[1] + 50 else "gray" for pixel in pixels if isinstance(pixel, tuple)]


def test_comparison_by_mouse_accountboard_and_zoom(page: Page, site: Running, keep: Save) -> None:
    figure = compared(page, site)
    slider, pair = figure.get_by_role("slider"), figure.locator(".pair")
    assert shown_colors(figure) == ["red", "gray"]
    box = pair.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + 20, steps=4)
    page.mouse.up()
    expect(slider).to_have_value("90")
    assert shown_colors(figure) == ["red", "red"]
    expect(slider).to_be_focused()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(slider).to_have_value("1")
    assert shown_colors(figure) == ["gray", "gray"]
    keep(page, "landing-comparison")
    zoom = figure.get_by_role("button", name="Zoom to 100%")
    zoom.click()
    expect(zoom).to_have_attribute("aria-pressed", "true")
    assert pair.evaluate("pair => [pair.offsetWidth, pair.offsetHeight]") == [2000, 1000]
    zoom.click()
    assert pair.evaluate("pair => pair.offsetWidth") < 1280


def test_a_portrait_is_compared_in_its_shape(page: Page, site: Running, keep: Save) -> None:
    """An image that is higher than the window is shown smaller, and not stretched."""
    page.goto("/")
    entry = add_file(page, saved_image(Image.new("RGB", (900, 1800), "red"), "PNG"), "high.png", "webp")
    convert(page)
    pair = entry.locator(".comparison .pair")
    expect(pair).to_be_visible()
    width, height = pair.evaluate("pair => [pair.offsetWidth, pair.offsetHeight]")
    assert height <= page.evaluate("innerHeight")
    assert width / height == pytest.approx(0.5, abs=0.01)


def test_an_explanation_moves_nothing(page: Page, site: Running) -> None:
    """It appears below its field while the pointer is on the label, or the field has the focus."""
    page.goto("/")
    add_file(page, sample("png"), "drawing.png", "webp")
    width, hint = page.locator("#all-width"), page.locator("#all-width-hint")
    group = page.locator('#options [data-name="size"]')
    expect(hint).to_be_hidden()
    height = group.evaluate("group => group.offsetHeight")
    for show in (page.locator("label[for=all-width]").hover, width.focus):

        def is_shown(show: Callable[[], None] = show) -> bool:
            """Whether the hint appears: not if the fields are replaced while the pointer is on them."""
            page.mouse.move(0, 0)
            show()
            page.wait_for_timeout(_HINT_DELAY)
            return hint.is_visible()

        assert eventually(is_shown)
        assert group.evaluate("group => group.offsetHeight") == height


def test_comparison_by_touch(browser: Browser, site: Running) -> None:
    context = browser.new_context(base_url=site.url.replace("127.0.0.1", "localhost"), has_touch=True)
    figure = compared(context.new_page(), site)
    box = figure.locator(".pair").bounding_box()
    assert box
    touch = context.new_cdp_session(figure.page)
    for kind, share in (("touchStart", 0.5), ("touchMove", 0.3), ("touchMove", 0.2), ("touchEnd", None)):
        points = [] if share is None else [{"x": box["x"] + box["width"] * share, "y": box["y"] + 20}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    expect(figure.get_by_role("slider")).to_have_value("20")
    assert shown_colors(figure) == ["gray", "gray"]
    context.close()


@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.long), (1280, "dark"), (360, "light")]
)
@pytest.mark.long
def test_accessibility_of_a_result(
    browser: Browser, site: Running, keep: Save, width: int, scheme: Literal["light", "dark"]
) -> None:
    """No violations with all groups open and a result, and nothing is wider than the window."""
    context = browser.new_context(base_url=site.url.replace("127.0.0.1", "localhost"), color_scheme=scheme)
    page = context.new_page()
    page.set_viewport_size({"width": width, "height": 900})
    use_account(page, site.account(credits=2))
    for name in ("one.png", "two.png"):
        entry = add_file(page, photographed(), name, "jpeg")
    convert(page)
    expect(page.locator("#total")).to_contain_text("2 files")
    open_options(entry)
    entry.get_by_role("button", name="Compare").click()
    expect(entry.locator(".comparison")).to_be_visible()
    keep(page, f"landing-result-{scheme}-{width}")
    for _ in range(2):  # the options of a file are made when they are opened
        page.evaluate("document.querySelectorAll('#trial details').forEach(details => { details.open = true; })")
        expect(entry.locator(".own-options .group")).not_to_have_count(0)
    rules = ("color-contrast",) if scheme == "dark" else ()  # the others do not depend on colors
    assert violations(page, *rules, within="#trial") == []
    wide = "one => one.getBoundingClientRect().right > innerWidth && !one.closest('pre, .visually-hidden')"
    assert page.evaluate(f"[...document.querySelectorAll('#trial *')].filter({wide}).map(one => one.outerHTML)") == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()


def test_options_of_the_pair(page: Page, site: Running, keep: Save) -> None:
    """The options of the pair are fields in groups; those that differ from their defaults are sent."""
    use_account(page, site.account(credits=3))
    entry = add_file(page, sample("heic"), "photo.heic", "jpeg")
    declared = site.request("GET", "/formats/heic/jpeg").json()["data"]["options"]["properties"]
    fields = page.locator("#options .options").locator("input, select")
    expect(fields).to_have_count(len(declared))
    assert page.locator("#options > details > summary").all_text_contents() == [
        f"{title} " for title in ("Quality", "Size", "Crop and rotate", "Pages", "Metadata", "Color", "Watermark")
    ]
    expect(page.get_by_label("Rotate")).to_be_hidden()
    page.get_by_text("Crop and rotate").click()
    expect(page.get_by_label("Rotate")).to_be_hidden()
    page.locator('[data-name="crop, further"] > summary').click()
    page.get_by_label("Rotate").select_option("90")
    quality = page.locator("#all-quality")
    assert quality.get_attribute("max") == "100"
    expect(quality).to_have_value(str(declared["quality"]["default"]))
    quality.fill("7")
    expect(page.locator('[data-name="quality"] .options-set')).to_have_text("(1 set)")
    expect(page.locator("#losses")).to_have_text(
        "jpeg leaves out fine detail, so that files are small; the quality says how much."
    )
    for width in (1280, 360):
        page.set_viewport_size({"width": width, "height": 900})
        keep(page, f"landing-options-{width}")
        assert page.evaluate("document.documentElement.scrollWidth") == width
    convert(page)
    expect(state(entry)).to_have_text("Done: heic to jpeg.")
    content = download(page, entry).path().read_bytes()
    assert content == site.convert(sample("heic"), "jpeg", quality="7", rotate="90").content
    expect(page.locator('.sample[data-language="curl"]').first).to_contain_text("-F rotate=90")
    expect(page.locator('.sample[data-language="curl"]').first).to_contain_text("-F quality=7")
    page.locator("#target").select_option("webp")
    expect(quality).to_have_value("7")
    page.locator("#target").select_option("png")
    expect(page.locator("#losses")).to_have_text("")
    expect(page.locator('#options [data-name="quality"]')).to_be_visible()


@pytest.mark.long
def test_previews_of_what_the_browser_cannot_show(page: Page) -> None:
    page.goto("/")
    for name in ("heic", "cr2", "pdf", "psd", "tiff"):
        entry = add_file(page, sample(name), f"image.{name}")
        entry.scroll_into_view_if_needed()  # only what is visible is asked for
        image = entry.get_by_role("img", name=f"Preview of image.{name}")
        expect(image).to_be_visible()
        assert image.evaluate("image => image.naturalWidth") > 0
