"""The documentation over HTTP: pages, links, their entries, and the examples of options."""

import json
import re
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageSequence
from tornado.escape import xhtml_escape

from engine import RASTER
from engine.decode_limits import MAX_FRAMES, MAX_PIXELS
from engine.registry import Registry
from tests.support.requests import http
from tests.support.results.conversions import opened
from tests.support.samples.generated import saved
from tests.support.samples.option_images import option_images, sizes_of
from tests.support.servers.in_process import Running, Servers
from web.api.error_catalogue import ERROR_CATALOGUE, WARNING_CATALOGUE
from web.api.operations import Tag
from web.docs.catalogue import documented_options, format_groups
from web.docs.docs_contents import DOCS_PAGES, read_entries
from web.docs.option_examples import EXAMPLES_FOLDER, OPTION_EXAMPLES, SIZES, SOURCES
from web.docs.option_groups import MORE, OPTION_GROUPS, grouped
from web.site.console import CONSOLE_PATH

PAGES = [page for page in DOCS_PAGES if page.name != f"options/{MORE.name}"]
_NOT_SEEN = {"metadata", "dpi", "bit_depth", "output_profile", "intent", "fps"}
_MAX_TOTAL = 300_000  # bytes
_TOLERANCE = 2.0  # mean difference in 8-bit levels


@pytest.fixture(scope="module")
def texts(server: Running) -> dict[str, str]:
    """The HTML of every page by its path."""
    paths = [*(page.path for page in PAGES), CONSOLE_PATH]
    return {path: http.get(server.url + path).raise_for_status().text for path in paths}


def test_anchors_are_unique_and_links_lead_somewhere(texts: dict[str, str]) -> None:
    anchors = {path: re.findall(r'\sid="([^"]+)"', text) for path, text in texts.items()}
    for path, text in texts.items():
        assert len(anchors[path]) == len({*anchors[path]})
        for target, anchor in re.findall(r'href="(/docs[^"#?]*)?(?:#([^"]+))?"', text):
            assert target in ("", *texts), (path, target)
            assert not anchor or anchor in anchors[target or path], (path, anchor)


def test_contents_show_the_place(texts: dict[str, str]) -> None:
    for page in PAGES:
        assert f'href="{page.path}" aria-current="page">{page.title}<' in texts[page.path]
        assert texts[page.path].count("aria-current=") == 2, "one of them in the header"


def test_each_operation_is_on_one_page(server: Running, texts: dict[str, str]) -> None:
    assert {tag for page in DOCS_PAGES for tag in page.tags} == {*get_args(Tag)}
    paths: dict[str, Any] = http.get(f"{server.api}/openapi.json").json()["paths"]
    for path, item in paths.items():
        ids = [one["operationId"] for method, one in item.items() if method != "servers"]
        twin = path.endswith("/json") and path.removesuffix("/json") in paths
        assert all(sum(f'id="{id_}"' in text for text in texts.values()) == (not twin) for id_ in ids)


def test_every_option_has_a_group_and_a_label(servers: Servers) -> None:
    groups = {one.name: own for one, own in grouped(documented_options(servers.registry))}
    assert MORE.name not in groups
    assert sum(len(one.labels) for one in OPTION_GROUPS) == len({n for one in OPTION_GROUPS for n in one.labels})
    for one in OPTION_GROUPS:
        assert {*one.words} <= {*one.labels}


def test_every_option_is_described(texts: dict[str, str], servers: Servers) -> None:
    registry = servers.registry
    taken = {name: registry.options[name] for plan in registry.catalogue() for name in registry.pair_options(plan)}
    rows = dict(row for text in texts.values() for row in re.findall(r'<tr id="option-(\w+)"[^>]*>(.*?)</tr>', text))
    assert {*rows} == {*taken}
    for name, row in rows.items():
        assert f">{xhtml_escape(taken[name].values)}<" in row
        assert xhtml_escape(taken[name].schema["description"]).partition("`")[0] in row
        assert f"default: {xhtml_escape(servers.registry.default_text(name)) or 'not set'}<" in row
    assert re.search(r">from any; to [^<]*\bjpeg\b", rows["quality"])
    assert re.search(r">from [^<]*\bpdf\b[^<]*; to any<", rows["password"])
    assert "70 (avif), " in rows["quality"]


def test_every_warning_error_reason_and_limit_is_explained(texts: dict[str, str]) -> None:
    for code, meaning in WARNING_CATALOGUE.items():
        row = re.search(rf'<tr id="{code}">(.*?)</tr>', texts["/docs/warnings"])
        assert row is not None
        assert meaning.partition("`")[0] in row[1]
    for code, description in ERROR_CATALOGUE.items():
        row = re.search(rf'<tr id="{code}">(.*?)</tr>', texts["/docs/errors"], re.DOTALL)
        assert row is not None
        assert all(f"<code>{reason}</code>" in row[1] for reason in description.reasons)
    for value in (f"{MAX_PIXELS:,}", f"{MAX_FRAMES};", "10 MB", "100 MB", "1 GB", "20 GB", "55 s", "30 s"):
        assert value in texts["/docs/limits"]
    for section in ("command", "client"):
        assert "CONVERTD_API_KEY" in texts["/docs/sdks"].partition(f'id="{section}"')[2].partition("</section>")[0]


def test_the_drawing_of_fit_has_the_sizes_of_results(server: Running, texts: dict[str, str]) -> None:
    drawn = re.findall(
        r'<figcaption><code>(\w+)</code><span class="result-size">(\d+) \S (\d+)</span>', texts["/docs/options/size"]
    )
    assert {name for name, _, _ in drawn} == {"inside", "outside", "cover", "contain", "fill"}
    image = saved(Image.new("RGB", (1200, 800), "navy"), "PNG")
    for name, width, height in drawn:
        result = server.convert(image, "png", width="600", height="600", fit=name).content
        assert opened(result).size == (int(width), int(height))


def test_the_table_of_formats_has_a_row_for_each_family(server: Running, servers: Servers) -> None:
    """Every format converts to the others beside it, and to no other one."""
    rows = format_groups(servers.registry)
    shown = {(source, target) for sources, targets in rows for source in sources for target in targets}
    pairs = {(source.name, target.name) for source, target in servers.registry.pairs()}
    assert {pair for pair in shown if pair[0] != pair[1]} == {pair for pair in pairs if pair[0] != pair[1]}
    assert ["odp", "ppt", "pptx"] in [sorted(sources) for sources, _ in rows]
    assert len(rows) <= 6
    for path in ("/", "/docs/convert"):
        table = http.get(server.url + path).text.partition('<table class="formats"')[2].partition("</table>")[0]
        assert table.count("<tr>") == len(rows) + 1


def test_the_changelog_has_all_changes(texts: dict[str, str]) -> None:
    assert "HTJ2K" in texts["/docs/changelog"]
    assert '<h2 id="version-1.0.0-title">1.0.0</h2>' in texts["/docs/changelog"]


def test_every_entry_has_its_own_anchor(texts: dict[str, str]) -> None:
    bodies = [text.partition("<article>")[2] for text in texts.values()]
    entries = [entry for body in bodies for entry in read_entries(body)]
    anchors = [entry.id for entry in entries]
    assert len(anchors) == len({*anchors})
    assert {"quickstart", "recipe-location", "option-width", "no_credits", "alpha_flattened", "convert"} <= {*anchors}


def test_pages_that_a_server_does_not_have(server: Running) -> None:
    for path in ("/docs/options/more", "/docs/quickstart", "/docs/none", "/docs/options/"):
        assert http.get(server.url + path).status_code == 404


def test_entries() -> None:
    first, second, third = read_entries(
        '<section id="a" data-words="one two"><h2>The <i>title</i></h2><p>Text<br> of</p><pre>no code</pre>'
        '<table><tr id="b"><th>row</th><td>cell</td></tr></table></section>'
        '<details id="c"><summary><h3>C</h3></summary></details>'
    )
    assert (first.id, first.title, first.text, first.in_contents) == ("a", "The title", "Text of", True)
    assert first.words == "one two"
    assert (second.id, second.title, second.text, second.in_contents) == ("b", "row", "cell", False)
    assert (third.id, third.title, third.text) == ("c", "C", "")


def _transform_options(registry: Registry) -> set[str]:
    """The options of changes of pixels in memory, which all formats of images have."""
    plan = registry.plan([registry.formats["png"]], registry.formats["webp"], options={})
    return {name for step in plan.transforms if step.format == RASTER for name in step.options}


def _frames(image: Image.Image) -> list[tuple[int, NDArray[np.float64]]]:
    frames = ImageSequence.Iterator(image)
    return [(frame.info.get("duration", 0), np.asarray(frame.convert("RGBA"), float)) for frame in frames]


def test_options_that_are_seen_have_an_example(servers: Servers) -> None:
    examples = [example.option for example in OPTION_EXAMPLES]
    assert len(examples) == len({*examples})
    assert _transform_options(servers.registry) - {*examples} == _NOT_SEEN
    assert {*examples} <= {name for group in OPTION_GROUPS for name in group.labels}


def test_images_are_what_conversions_make() -> None:
    made = option_images()
    assert {path.name for path in EXAMPLES_FOLDER.iterdir()} == {*made, SIZES, "scene.svg"}
    assert sum(path.stat().st_size for path in EXAMPLES_FOLDER.iterdir()) <= _MAX_TOTAL
    sizes = json.loads((EXAMPLES_FOLDER / SIZES).read_text())
    for name, data in made.items():
        kept = (EXAMPLES_FOLDER / name).read_bytes()
        image, now = opened(kept), opened(data)
        assert sizes[name] == sizes_of(kept), name
        assert (image.format, image.size, image.info.get("loop")) == (now.format, now.size, now.info.get("loop"))
        for (duration, frame), (duration_now, frame_now) in zip(_frames(image), _frames(now), strict=True):
            assert duration == duration_now, name
            assert np.abs(frame - frame_now).mean() <= _TOLERANCE, name


def test_pages_show_the_examples_of_their_options(server: Running) -> None:
    shown = set()
    for group in OPTION_GROUPS:
        page = http.get(f"{server.url}/docs/options/{group.name}", timeout=60)  # the first one takes a second
        text = page.raise_for_status().text
        for path, alt in re.findall(r'<img src="([^"]+)" alt="([^"]+)" width="\d+" height="\d+" loading="lazy">', text):
            assert alt
            shown.add(path.partition("?")[0])
        examples = [example for example in OPTION_EXAMPLES if example.option in group.labels]
        for example in examples:
            assert f'<a href="#option-{example.option}">' in text
            for field in example.fields:
                assert f">{field}</span>" in text
        stills = [one for one in examples if one.source == "film" and one.option == "pages"]
        films = [one for one in examples if one.source == "film"]
        assert text.count("<summary>Play") == len(films) - len(stills) + bool(films)
    names = {one.image for one in OPTION_EXAMPLES} | {one.image(name) for name, one in SOURCES.items()}
    assert shown == {f"/static/examples/{name}" for name in names}
    assert http.get(f"{server.url}/static/examples/scene.webp").headers["Content-Type"] == "image/webp"
