"""Several tools on one file or several, one after the other: what they make, and what is refused."""

from typing import Any

import pikepdf
import pytest

from engine import ConversionError
from tests.support.results.conversions import ToolRun, run_tool
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import document, opened, saved

_TURN: dict[str, Any] = {"tool": "pdf-rotate", "angle": 90}
_SPLIT: dict[str, Any] = {"tool": "pdf-split", "every": 1}


def _pipe(*stages: dict[str, Any], inputs: tuple[bytes, ...] = (), **files: bytes) -> ToolRun:
    return run_tool("pdf-pipe", *(inputs or (document("A", 3),)), files=files, stages=list(stages))


def test_stages_run_in_their_order() -> None:
    pages = {"tool": "pdf-extract-pages", "pages": [3, "1"]}

    result = _pipe(pages, {**_TURN, "pages": "1"}, {**_TURN, "angle": "180"})

    with opened(result.data) as read:
        assert [page.obj.get("/Rotate", 0) for page in read.pages] == [270, 180]


def test_several_files_become_one_and_one_becomes_several() -> None:
    files = (document("A", 2), document("B", 1))

    parts = _pipe({"tool": "pdf-merge"}, _SPLIT, inputs=files)
    joined = _pipe({"tool": "pdf-merge"}, _SPLIT, {"tool": "pdf-merge"}, inputs=files)
    images = _pipe({"tool": "pdf-from-images"}, {"tool": "pdf-extract-images"}, inputs=(sample("png"), sample("jpeg")))

    assert [*parts.files] == ["01.pdf", "02.pdf", "03.pdf"]
    assert parts.outcome.container == "zip"
    assert (joined.outcome.container, joined.outcome.page_count) == (None, 3)
    assert sorted(name.rpartition(".")[2] for name in images.files) == ["jpg", "png"]


def test_options_name_files_of_the_form() -> None:
    result = _pipe({"tool": "pdf-watermark", "stamp": "logo"}, _TURN, logo=sample("png"))

    with opened(result.data) as read:
        assert all("/XObject" in page.obj.Resources for page in read.pages)


def test_a_stage_opens_what_the_one_before_has_encrypted() -> None:
    locked = _pipe({"tool": "pdf-protect", "user_password": "secret"}, _TURN)
    unlocked = _pipe({"tool": "pdf-protect", "user_password": "secret"}, _TURN, {"tool": "pdf-unlock"}, _TURN)
    opening = run_tool("pdf-pipe", locked.data, stages=[_TURN, {"tool": "pdf-unlock"}], password="secret")

    assert opened(locked.data, "secret").is_encrypted
    assert not opened(unlocked.data).is_encrypted
    assert not opened(opening.data).is_encrypted
    assert (locked.codes, unlocked.codes, opening.codes) == (set(), set(), set())


def test_warnings_name_their_stage() -> None:
    with opened(document("A", 1)) as made:
        made.Root.OpenAction = pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS=pikepdf.String("x"))
        data = saved(made)

    result = _pipe(_TURN, inputs=(data,))

    assert [(one.code, one.message.partition(":")[0]) for one in result.outcome.warnings] == [
        ("active_content", "pdf-rotate")
    ]


@pytest.mark.parametrize(
    ("stages", "param", "reason"),
    [
        ([{"tool": "pdf-melt"}], "stages[0].tool", "unknown"),
        ([{"angle": 90}], "stages[0].tool", "missing"),
        ([{"tool": "pdf-pipe", "stages": []}], "stages[0].tool", "unknown"),
        ([_TURN, {"tool": "pdf-rotate", "angle": 1}], "stages[1].angle", "unknown"),
        ([{**_TURN, "sides": 2}], "stages[0].sides", "unknown_parameter"),
        ([_TURN, {"tool": "pdf-rotate"}], "stages[1].angle", "missing"),
        ([_TURN, {**_TURN, "pages": "9"}], "stages[1].pages", "out_of_range"),
        ([_SPLIT, _TURN], "stages[1].tool", "out_of_range"),
        ([_TURN, {"tool": "pdf-merge"}], "stages[1].files[]", "out_of_range"),
        ([{"tool": "pdf-watermark", "stamp": "logo"}], "stages[0].stamp", "no_file"),
        ([], "stages", "out_of_range"),
        ([_TURN] * 21, "stages", "out_of_range"),
    ],
)
def test_what_is_refused(stages: list[dict[str, Any]], param: str, reason: str) -> None:
    with pytest.raises(ConversionError) as raised:
        _pipe(*stages)
    assert (raised.value.param, raised.value.reason) == (param, reason)


def test_a_file_that_no_stage_names_is_refused() -> None:
    with pytest.raises(ConversionError) as raised:
        _pipe(_TURN, logo=sample("png"))
    assert (raised.value.param, raised.value.reason) == ("logo", "unknown_parameter")
