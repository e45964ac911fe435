"""The recipes of the documentation: their commands and requests run, and every sentence is checked."""

import io
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TypeAlias
from zipfile import ZipFile

import numpy as np
import pikepdf
import pillow_heif
import pytest
from PIL import Image
from PIL.ExifTags import GPS, IFD, Base

from tests.support.command_line import invoke
from tests.support.requests import http
from tests.support.results.conversions import opened
from tests.support.results.programs import languages_here, run_sample
from tests.support.samples.generated import saved
from tests.support.samples.pairs import every
from tests.support.samples.pdf_documents import document, page_texts
from tests.support.servers.in_process import Running
from tests.support.servers.receiver import Received, Receiver, Send, reply
from web.docs.code_samples import PHOTOS_PROGRAM
from web.docs.recipes import RECIPES, Recipe

_PRIVATE = (Base.BodySerialNumber, Base.LensSerialNumber, Base.CameraOwnerName)

Check: TypeAlias = Callable[[Path, Running], None]
"""Looks at a folder in which all commands, and in its folder `api` all requests, have been run."""


def _photo(size: tuple[int, int] = (900, 600)) -> Image.Image:
    """A gray image with noise, which compresses badly, and a saturated square at the right."""
    noise = Image.effect_noise(size, 60).convert("RGB")
    noise.paste((230, 20, 20), (size[0] * 7 // 9, size[1] // 4, size[0] * 8 // 9, size[1] // 2))
    return noise


def _tagged() -> bytes:
    image, exif = _photo(), Image.Exif()
    exif[Base.Make] = "A maker"
    exif.get_ifd(IFD.GPSInfo)[GPS.GPSLatitude] = (48.0, 8.0, 0.0)
    exif.get_ifd(IFD.Exif).update(dict.fromkeys(_PRIVATE, "of one person"))
    return saved(image, "JPEG", exif=exif)


def _scanned() -> bytes:
    """A PDF of two pages with text, the first with a large image."""
    with pikepdf.open(io.BytesIO(document("scan", 2))) as made:
        image = made.make_stream(_photo((2000, 2000)).tobytes())
        image.Type, image.Subtype = pikepdf.Name.XObject, pikepdf.Name.Image
        image.Width, image.Height, image.BitsPerComponent = 2000, 2000, 8
        image.ColorSpace = pikepdf.Name.DeviceRGB
        made.pages[0].add_resource(image, pikepdf.Name.XObject, pikepdf.Name.Large)
        made.pages[0].contents_add(b"q 200 0 0 200 100 100 cm /Large Do Q")
        target = io.BytesIO()
        made.save(target)
        return target.getvalue()


@pytest.fixture(scope="module")
def files() -> Mapping[str, bytes]:
    """The files that the recipes name."""
    heic = io.BytesIO()
    pillow_heif.from_pillow(_photo()).save(heic, quality=95)
    jpeg = _tagged()
    return {
        "photo.heic": heic.getvalue(),
        "photo.jpg": jpeg,
        "first.jpg": jpeg,
        "second.jpg": saved(_photo((300, 200)), "JPEG"),
        "document.pdf": _scanned(),
        "photos/one.heic": heic.getvalue(),
        "photos/below/two.heic": heic.getvalue(),
        "photos/notes.xyz": b"\0no picture",
    }


@pytest.fixture(scope="module")
def folder(server: Running, files: Mapping[str, bytes], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which each recipe has been run as a command, and in `api` as a request with curl."""
    root = tmp_path_factory.mktemp("recipes")
    for place, run in ((root, _run_command), (root / "api", _run_request)):
        for recipe in RECIPES:
            here = place / recipe.id
            for name, content in files.items():
                (here / name).parent.mkdir(parents=True, exist_ok=True)
                (here / name).write_bytes(content)
            (here / "output.txt").write_text(run(recipe, here, server))
    return root


def _run_command(recipe: Recipe, here: Path, _server: Running) -> str:
    done = invoke(here, *shlex.split(recipe.command)[1:])
    skips = recipe.id == "folder"
    assert done.exit_code == 0 or skips, done.output
    return done.output


def _run_request(recipe: Recipe, here: Path, server: Running) -> str:
    done = run_sample("curl", recipe.samples(server.api)["curl"], server.key, here)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _image(page: pikepdf.Page) -> pikepdf.Object:
    (image,) = page.get_images().values()
    return image


def _both(folder: Path, recipe: str, name: str) -> list[bytes]:
    return [(place / recipe / name).read_bytes() for place in (folder, folder / "api")]


def _has_size(name: str, recipe: str, *size: int) -> Check:
    def check(folder: Path, _server: Running) -> None:
        for content in _both(folder, recipe, name):
            assert opened(content).size == size

    return check


def _narrow_stays(folder: Path, server: Running) -> None:
    made = server.convert(saved(_photo((200, 100)), "PNG"), "webp", width="300")
    assert opened(made.content).size == (200, 100)
    assert "not_enlarged" in made.headers["X-Warnings"]


def _keeps_the_square(folder: Path, _server: Running) -> None:
    for content in _both(folder, "avatar", "avatar.jpg"):
        red, green, _blue = np.moveaxis(np.asarray(opened(content).convert("RGB")), -1, 0)
        assert ((red > 180) & (green < 80)).any()


def _largest_quality(folder: Path, _server: Running) -> None:
    for content in _both(folder, "limit", "small.jpg"):
        assert 100_000 < len(content) <= 200_000


def _has_the_quality(folder: Path, server: Running) -> None:
    form = {"output_format": "jpeg", "max_bytes": "200000"}
    content = (folder / "limit" / "photo.heic").read_bytes()
    response = http.post(f"{server.api}/convert/json", headers=server.auth, data=form, files={"file": content})
    assert 1 <= response.json()["data"]["quality_used"] <= 100


def _no_location(folder: Path, server: Running) -> None:
    photo = (folder / "location" / "photo.jpg").read_bytes()
    assert {*_PRIVATE} <= opened(photo).getexif().get_ifd(IFD.Exif).keys()
    exif = opened(server.convert(photo, "jpeg").content).getexif()
    assert (dict(exif.get_ifd(IFD.GPSInfo)), exif[Base.Make]) == ({}, "A maker")
    assert not {*_PRIVATE} & exif.get_ifd(IFD.Exif).keys()


def _no_metadata(folder: Path, _server: Running) -> None:
    for content in _both(folder, "location", "clean.jpg"):
        assert dict(opened(content).getexif()) == {}


def _pages_are_images(folder: Path, _server: Running) -> None:
    with pikepdf.open(folder / "pages" / "document.pdf") as read:
        widths = [round(float(page.mediabox[2]) / 72 * 200) for page in read.pages]
    with ZipFile(folder / "api" / "pages" / "pages.zip") as pages:
        assert [opened(pages.read(name)).width for name in pages.namelist()] == pytest.approx(widths, abs=1)


def _archive_or_image(folder: Path, server: Running) -> None:
    with ZipFile(folder / "api" / "pages" / "pages.zip") as pages:
        assert len(pages.namelist()) == 2
    one = server.convert(document("one", 1), "png", pages="all", dpi="200")
    assert one.content.startswith(b"\x89PNG")


def _numbered_or_archive(folder: Path, _server: Running) -> None:
    here = folder / "pages"
    assert len([*here.glob("page-*.png")]) == 2
    assert invoke(here, "convert", "--pages", "all", "document.pdf", "--to", "png", "-o", "page.zip").exit_code == 0
    with ZipFile(here / "page.zip") as pages:
        assert len(pages.namelist()) == 2


def _pages_in_order(folder: Path, _server: Running) -> None:
    for content in _both(folder, "document", "images.pdf"):
        with pikepdf.open(io.BytesIO(content)) as made:
            assert [int(_image(page).Width) for page in made.pages] == [900, 300]


def _same_jpeg(folder: Path, _server: Running) -> None:
    for content in _both(folder, "document", "images.pdf"):
        with pikepdf.open(io.BytesIO(content)) as made:
            embedded = opened(_image(made.pages[0]).read_raw_bytes())
            assert embedded.tobytes() == Image.open(folder / "document" / "first.jpg").tobytes()


def _images_are_small(folder: Path, _server: Running) -> None:
    before = (folder / "small-pdf" / "document.pdf").stat().st_size
    for content in _both(folder, "small-pdf", "small.pdf"):
        assert len(content) < before / 10
        with pikepdf.open(io.BytesIO(content)) as made:
            assert int(_image(made.pages[0]).Width) <= 150 * 200 / 72 + 1


def _text_stays(folder: Path, _server: Running) -> None:
    for content in _both(folder, "small-pdf", "small.pdf"):
        assert page_texts(content) == page_texts((folder / "small-pdf" / "document.pdf").read_bytes())


def _jpegs_beside(folder: Path, _server: Running) -> None:
    for name in ("one.jpg", "below/two.jpg"):
        for content in _both(folder, "folder", f"photos/{name}"):
            assert opened(content).format == "JPEG"


def _lines_of_skipped(folder: Path, _server: Running) -> None:
    (line,) = (line for line in (folder / "folder" / "output.txt").read_text().splitlines() if "notes.xyz" in line)
    assert "skipped" in line


def _repeats(folder: Path, _server: Running) -> None:
    assert "It is processing_failed." in repeat("curl", folder / "busy")


def repeat(language: str, folder: Path) -> str:
    """Converts with a server that is down, then busy for a moment, and refuses a file. Returns what is printed."""
    (folder / "photos").mkdir(parents=True)
    for name in ("busy.HEIC", "refused.heic"):
        (folder / "photos" / name).write_bytes(name.encode())
    busy, refusal = (
        {"error": {"code": code, "message": f"It is {code}.", "retryable": code == "queue_full", "request_id": "req_1"}}
        for code in ("queue_full", "processing_failed")
    )
    keys, refused = list[str](), list[str]()

    def respond(request: Received, send: Send) -> None:
        if b"refused.heic" in request.body.partition(b"\r\n\r\n")[2]:
            refused.append(request.headers["idempotency-key"])
            reply(500, json.dumps(refusal).encode())(request, send)
            return
        keys.append(request.headers["idempotency-key"])
        answers = (reply(502, b"<html>"), reply(503, json.dumps(busy).encode(), retry_after="1"), reply(200, b"a JPEG"))
        answers[len(keys) - 1](request, send)

    with Receiver(respond) as receiver:
        done = run_sample(language, PHOTOS_PROGRAM[language].replace("{url}", receiver.url), "cvd_live_x", folder)

    assert (folder / "photos" / "busy.jpg").read_bytes() == b"a JPEG"
    assert (len(keys), len({*keys}), len(refused)) == (3, 1, 1)
    assert keys[0]
    assert done.returncode
    assert {path.name for path in (folder / "photos").iterdir()} == {"busy.HEIC", "busy.jpg", "refused.heic"}
    return done.stdout + done.stderr


@pytest.mark.long
@pytest.mark.parametrize("language", languages_here())
def test_the_program_of_each_language_repeats(language: str, tmp_path: Path) -> None:
    assert "It is processing_failed." in repeat(language, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("language", languages_here())
def test_the_requests_of_all_recipes(
    server: Running, files: Mapping[str, bytes], language: str, tmp_path: Path
) -> None:
    for recipe in RECIPES:
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(content)
        done = run_sample(language, recipe.samples(server.api)[language], server.key, tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert recipe.call is None or (tmp_path / (recipe.call.saves or "")).is_file()


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "The image becomes 300 pixels wide, and keeps its aspect ratio.": _has_size(
            "thumbnail.webp", "thumbnail", 300, 200
        ),
        "An image that is narrower stays as it is, with the warning `not_enlarged`.": _narrow_stays,
        "The image fills a square of 256 pixels.": _has_size("avatar.jpg", "avatar", 256, 256),
        "`gravity=attention` keeps the part that draws attention, such as a face.": _keeps_the_square,
        "The file has at most 200,000 bytes, at the highest quality that fits.": _largest_quality,
        "JSON responses have that quality as `quality_used`.": _has_the_quality,
        "By default, results have no position, serial number or owner.": _no_location,
        "`metadata=none` removes all other metadata, too.": _no_metadata,
        "Every page becomes an image with 200 pixels per inch.": _pages_are_images,
        "The response is a ZIP archive; with one page, it is the image.": _archive_or_image,
        "The command writes a file for each page, or with `--to png -o pages.zip` a ZIP archive.": _numbered_or_archive,
        "Each image becomes a page, in the order of the request.": _pages_in_order,
        "JPEG data is not compressed again.": _same_jpeg,
        "Images get at most 150 pixels per inch, recompressed where that makes them smaller.": _images_are_small,
        "Text stays text.": _text_stays,
        "Every photo below the folder gets a JPEG beside it.": _jpegs_beside,
        "The command skips other files, and lists them.": _lines_of_skipped,
        "The programs repeat for a while what can succeed later, which an `Idempotency-Key` charges once, "
        "and print the messages of other errors.": _repeats,
    }
)


def test_every_sentence_has_a_check() -> None:
    assert {*CHECKS} == {sentence for recipe in RECIPES for sentence in recipe.sentences}


@pytest.mark.parametrize("sentence", every(2, CHECKS))
def test_a_sentence_of_a_recipe(folder: Path, server: Running, sentence: str) -> None:
    CHECKS[sentence](folder, server)


def test_recipes_are_shown(server: Running) -> None:
    text = http.get(f"{server.url}/docs").text
    for recipe in RECIPES:
        section = text.partition(f'id="recipe-{recipe.id}"')[2].partition("</section>")[0]
        assert recipe.command in section
        assert section.count('class="sample"') == len(recipe.samples(server.api))
