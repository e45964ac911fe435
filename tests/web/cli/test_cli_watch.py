"""`convertd watch`: files are converted once, when they are complete, also if it is stopped and started again."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import Result

from tests.support.command_line import invoke
from tests.support.samples.generated import sample
from web.cli import watch

_COMMAND = ("watch", "in", "out", "--to", "webp", "-r", "--width", "50%")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "in" / "more").mkdir(parents=True)
    (tmp_path / "in" / "more" / "a.png").write_bytes(sample("png"))
    (tmp_path / "in" / "bad.png").write_bytes(sample("png")[:100])
    (tmp_path / "in" / "notes.bin").write_bytes(b"\0")
    (tmp_path / "in" / "link.png").symlink_to("nothing.png")
    return tmp_path


def _watch(folder: Path, monkeypatch: pytest.MonkeyPatch, *steps: Callable[[], object]) -> Result:
    """Watches; between two looks, one of the steps runs, and then it is stopped."""
    left: Iterator[Callable[[], object]] = iter((*steps, lambda: None))

    def sleep(_seconds: float) -> None:
        step = next(left, None)
        if step is None:
            raise KeyboardInterrupt
        step()

    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=sleep))
    return invoke(folder, *_COMMAND)


def _results(folder: Path) -> set[str]:
    return {str(path.relative_to(folder / "out")) for path in (folder / "out").rglob("*.webp")}


def test_complete_files_are_converted_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[set[str]] = []
    with (folder / "in" / "slow.png").open("wb") as slow:
        slow.write(sample("png")[:200])
        slow.flush()
        done = _watch(
            *(folder, monkeypatch),
            lambda: found.append(_results(folder)),
            lambda: found.append(_results(folder)),
            lambda: slow.write(sample("png")[200:]),
            slow.close,
            lambda: None,
        )

    assert done.exit_code == 0, done.stderr
    assert found == [set(), {"more/a.webp"}]
    assert _results(folder) == {"more/a.webp", "slow.webp"}
    assert done.stderr.count("corrupt_input") == 1
    assert done.stderr.count("notes.bin is skipped") == done.stderr.count("link.png is skipped") == 1
    assert done.stderr.endswith("convertd: stopped.\n")

    again = _watch(folder, monkeypatch, lambda: (folder / "in" / "new.png").write_bytes(sample("png")), lambda: None)

    assert "new.webp" in _results(folder)
    assert "exists" not in again.stderr
    assert again.stderr.count("corrupt_input") == 1  # a failure is tried again


def test_a_file_that_is_taken_away_does_not_end_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = folder / "in" / "more" / "gone.png"
    gone.write_bytes(sample("png"))

    def take_away(path: Path) -> bool:
        gone.unlink(missing_ok=True)
        return False

    monkeypatch.setattr(watch, "_is_open_for_writing", take_away)

    done = _watch(folder, monkeypatch, lambda: None, lambda: None)

    assert (done.exit_code, "gone.png is not a file" in done.stderr) == (0, True)
    assert _results(folder) == {"more/a.webp"}


def test_a_folder_that_is_removed_ends_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = _watch(folder, monkeypatch, lambda: shutil.rmtree(folder / "in"), lambda: None)

    assert done.exit_code == 1
    assert done.stderr.endswith("convertd: cannot use in: No such file or directory\n")


@pytest.mark.parametrize("words", [("in",), ("in", "in"), ("none", "out"), ("in", "out", "--width", "x")])
def test_wrong_usage(folder: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "time", SimpleNamespace(sleep=lambda _: None))

    assert invoke(folder, "watch", *words, "--to", "webp").exit_code == 2
    assert invoke(folder, "watch", "in", "out").exit_code == 2
