"""A headless browser: Debian's Chromium, driven by Playwright."""

import re
import shutil
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TypeAlias

import axe_playwright_python
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from playwright.sync_api import Browser, Download, Locator, Page, expect, sync_playwright

Screenshots: TypeAlias = Callable[..., list[NDArray[np.int64]]]
"""Takes images of files of equal size."""

_AXE = Path(axe_playwright_python.__file__).with_name("axe.min.js")
_FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Chromium, without a profile."""
    # The headless shell opens pages in a quarter of the time.
    program = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert program is not None, "Chromium is not installed here: sh config/setup.sh test"
    expect.set_options(timeout=30_000)  # the default, 5 seconds, is too short for a busy machine
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=[*_FLAGS])
        yield browser
        browser.close()


def shown_images(page: Page, *files: bytes) -> list[NDArray[np.int64]]:
    """Screenshots of image files of equal size on white. The browser detects their formats."""
    urls = [f"data:image/png;base64,{b64encode(data).decode()}" for data in files]
    images = "".join(f'<img style="display:block" src="{url}">' for url in urls)
    page.set_content(f'<div style="width:fit-content">{images}</div>')
    page.wait_for_function("[...document.images].every(image => image.complete && image.naturalWidth)")
    shown = Image.open(BytesIO(page.locator("div").screenshot())).convert("RGB")
    return np.split(np.asarray(shown, int), len(files))


_DECODE = """async ([file, type]) => {
    const data = Uint8Array.from(atob(file), (byte) => byte.charCodeAt(0));
    const decoder = new ImageDecoder({data, type, premultiplyAlpha: "none", colorSpaceConversion: "none"});
    await Promise.all([decoder.tracks.ready, decoder.completed]);
    const {frameCount, repetitionCount} = decoder.tracks.selectedTrack;
    const frames = [];
    for (let frameIndex = 0; frameIndex < frameCount; frameIndex++) {
        const {image} = await decoder.decode({frameIndex});
        const samples = new Uint8Array(image.allocationSize({format: "RGBA"}));
        await image.copyTo(samples, {format: "RGBA"});
        frames.push([image.duration ?? 0, image.codedHeight, image.codedWidth, [...samples]]);
        image.close();
    }
    return [repetitionCount === Infinity ? 0 : repetitionCount + 1, frames];
}"""


def decoded_frames(page: Page, data: bytes, media_type: str) -> tuple[int, list[tuple[float, NDArray[np.uint8]]]]:
    """How often an animation plays, 0 for ever, and its frames: milliseconds, and rows x columns x RGBA.

    The page must be of localhost.
    """
    plays, frames = page.evaluate(_DECODE, [b64encode(data).decode(), media_type])
    return plays, [
        (duration / 1000, np.array(samples, np.uint8).reshape(height, width, 4))
        for duration, height, width, samples in frames
    ]


def violations(page: Page, *rules: str, within: str = "", exclude: str = "") -> list[str]:
    """Violations of axe-core's accessibility rules, all or only the named ones, in the elements selected."""
    if not page.evaluate("'axe' in window"):
        # The content security policy of the pages allows no inline script, but does not apply to the debugger.
        page.evaluate(_AXE.read_text())
    context = {"include": [within or "html"], "exclude": [exclude] if exclude else []}
    options: dict[str, object] = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    run = "([context, options]) => axe.run(context, options).then(found => found.violations)"
    found = page.evaluate(run, [context, options])
    return [f"{one['id']}: {node['html']} {node['failureSummary']}" for one in found for node in one["nodes"]]


def add_file(page: Page, content: bytes | Path, name: str = "", target: str = "") -> Locator:
    """Chooses another file in the try-it form: content with a name, or a path, which is faster for a large file.

    Returns its entry, with the output format selected for all files.
    """
    entries = page.locator("#files > li")
    count = entries.count()
    if isinstance(content, Path):
        page.locator("#file").set_input_files(content)
    else:
        page.locator("#file").set_input_files({"name": name, "mimeType": "", "buffer": content})
    expect(entries).to_have_count(count + 1)
    if target:
        page.locator("#target").select_option(target)
    return entries.nth(count)


def sign_in(page: Page, key: str) -> None:
    """Opens the dashboard of the key's account."""
    page.goto("/dashboard")
    page.get_by_label("API key").fill(key)
    page.get_by_role("button", name="Sign in").click()
    expect(page.locator("#credits")).to_be_visible()


def use_account(page: Page, key: str) -> None:
    """Opens the start page for the key's account."""
    sign_in(page, key)
    page.goto("/")


def open_options(entry: Locator) -> None:
    """Shows the options, warnings and images of a file in the try-it form."""
    if not entry.locator(".panel").is_visible():
        entry.get_by_role("button", name="Options").click()


def convert(page: Page) -> None:
    """Converts the files that are new or changed."""
    button = page.locator("#convert")
    expect(button).to_have_text(re.compile("^Convert "))
    button.click()


def download(page: Page, entry: Locator) -> Download:
    """Saves the result of a file in the try-it form."""
    with page.expect_download() as found:
        entry.get_by_role("link", name="Download").click()
    return found.value


def state(entry: Locator) -> Locator:
    """What happens to a file in the try-it form."""
    return entry.locator(".state")
