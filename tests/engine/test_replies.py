"""Replies of worker processes, of which anything unusual is a crash, and the folders of those that have ended."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import ConversionError, CorruptInput, StepFailed, sandbox
from engine.errors import WorkerCrashed
from engine.executor import tasks
from engine.executor.disk_quota import BaseFolder
from engine.executor.tasks import TaskResult
from engine.outcome import Outcome, WarningRecord
from engine.pipeline import Timing
from engine.sandbox import SandboxReport

_RESULT = TaskResult(
    Outcome(
        "jpeg",
        10,
        warnings=(WarningRecord("alpha_flattened", "A sentence: “ä”."),),
        container="zip",
        file_count=2,
        width=100,
        pages=1,
        quality_used=80,
        page_count=3,
        deleted_pages=(1, 2),
    ),
    (Timing("png -> raster", "decode", 0.5), Timing("raster -> jpeg", "encode", 1)),
    check_seconds=0.1,
    peak_memory=1 << 33,
)
_DEEP = "[" * 20_000 + "]" * 20_000
_NOT_A_NUMBER, _INFINITE, _OVERFLOWING = "NaN", "-Infinity", "1e999"
_TEXTS: list[Any] = ["\ud800", "\0", None, 1, ["x"]]
_DETAILS: list[Any] = [
    *(None, [], {"\ud800": 1}),
    *({"x": value} for value in ("\ud800", float("nan"), float("inf"), [[1]], {"x": [1]}, {"x": {"x": 1}})),
]
_PROGRAM = """
import sys, time
from pathlib import Path
from engine.executor.disk_quota import BaseFolder
folder = BaseFolder(Path(sys.argv[1]))
Path(folder.path, "1").mkdir()
Path(folder.path, "1", "file").touch()
print(folder.path, flush=True)
time.sleep(60)
"""


def _reply(**changes: str) -> bytes:
    """A reply whose values, or those of its outcome, are replaced by JSON texts."""
    values = json.loads(tasks.result_reply(_RESULT, reusable=True))["result"]
    outcome = values["outcome"]
    texts = {"outcome": _object(outcome, {name: text for name, text in changes.items() if name in outcome})}
    return (
        f'{{"result": {_object(values, {**{k: v for k, v in changes.items() if k not in outcome}, **texts})}}}'.encode()
    )


def _object(values: dict[str, Any], changes: dict[str, str]) -> str:
    texts = {name: json.dumps(value) for name, value in values.items()} | changes
    return "{" + ", ".join(f'"{name}": {text}' for name, text in texts.items()) + "}"


def _error(**changes: Any) -> bytes:
    values = CorruptInput("A sentence.", details={"max": 1}).as_json()
    return json.dumps({"error": values | changes}).encode()


def test_a_result_arrives_as_it_was_sent() -> None:
    assert tasks.parse_result(tasks.result_reply(_RESULT, reusable=True)) == (_RESULT, True)
    assert tasks.parse_result(_reply()) == (_RESULT, False)


def test_an_error_arrives_as_it_was_sent() -> None:
    details = {"available": ["a", "b"], "limits": {"max": 1.5}, "index": 0, "format": None, "step": "png -> raster"}

    with pytest.raises(CorruptInput) as raised:
        tasks.parse_result(tasks.error_reply(CorruptInput("A sentence.", reason="r", param="p", details=details)))

    assert raised.value.as_json() == CorruptInput("A sentence.", reason="r", param="p", details=details).as_json()


def test_messages_lose_what_cannot_be_sent() -> None:
    warnings = (WarningRecord("code", "half a \ud800 pair, \x00 and\x1b[31m"),)

    received, _ = tasks.parse_result(
        tasks.result_reply(replace(_RESULT, outcome=replace(_RESULT.outcome, warnings=warnings)), reusable=True)
    )

    assert received.outcome.warnings == (WarningRecord("code", "half a   pair,   and [31m"),)


@pytest.mark.parametrize(
    "reply",
    [
        *(b"", b"{}", b"[]", b"null", b"{", b"\xff\xfe", b'{"result": null}', b'{"error": null}', b'{"report": {}}'),
        *(_DEEP.encode(), f'{{"more": {_DEEP}}}'.encode(), _reply(trace=_DEEP), _reply(more=_DEEP)),
        *(
            _reply(processed_size=text)
            for text in ("-1", "1.5", "true", '"1"', "null", "9" * 20, "9" * 5000, _NOT_A_NUMBER)
        ),
        *(_reply(check_seconds=text) for text in (_NOT_A_NUMBER, _INFINITE, _OVERFLOWING, "-1", '"1"', "null")),
        *(_reply(file_count=text) for text in ("0", "-1", "null", "4294967296")),
        *(_reply(quality_used=text) for text in ("101", "-1", "1.5")),
        *(_reply(width=text) for text in ("[]", "-1", "1.5", '"1"', "2147483648")),
        *(_reply(deleted_pages=text) for text in ("1", "[-1]", "[null]")),
        *(_reply(container=text) for text in ("1", '"tar"', "[]")),
        *(_reply(trace=f'[{{"step": "s", "stage": "s", "seconds": {text}}}]') for text in (_NOT_A_NUMBER, "1e99")),
        *(
            _reply(warnings=f'[{{"code": "code", "message": {text}}}]')
            for text in (r'"\ud800"', r'"\udfff\ud800"', r'"\u0000"', r'"\u001b[31m"', '"\x7f"', "1", "null", "[]")
        ),
        _reply(warnings='[{"code": "code", "message": "\x80"}]').replace(b"\xc2\x80", b"\xed\xa0\x80"),
        _reply() + b" " * tasks.MAX_MESSAGE,
        _reply() + b"{}",
        *(_error(message=value) for value in _TEXTS),
        *(_error(kind=value) for value in _TEXTS),
        *(_error(details=value) for value in _DETAILS),
    ],
)
def test_an_unusual_reply_is_a_crash(reply: bytes) -> None:
    with pytest.raises(WorkerCrashed, match="unreadable"):
        tasks.parse_result(reply)


def test_an_error_that_is_too_long_becomes_another() -> None:
    with pytest.raises(StepFailed, match="too long"):
        tasks.parse_result(tasks.error_reply(CorruptInput("x" * tasks.MAX_MESSAGE)))


def test_an_unknown_class_of_errors_is_a_failed_conversion() -> None:
    with pytest.raises(ConversionError) as raised:
        tasks.parse_result(_error(kind="SystemExit"))

    assert type(raised.value) is ConversionError


def test_a_report_names_all_layers() -> None:
    report = SandboxReport(dict.fromkeys(sandbox.LAYERS, True), {"no sockets": True})

    assert tasks.parse_report(tasks.report_reply(report)) == report
    for reply in (
        tasks.report_reply(SandboxReport({"landlock": True}, {})),
        tasks.report_reply(report).replace(b"true", b"1"),
        tasks.report_reply(report).replace(b"true", _DEEP.encode()),
        b"{}",
    ):
        with pytest.raises(WorkerCrashed):
            tasks.parse_report(reply)


@pytest.mark.parametrize(
    ("number", "reason", "retryable"),
    [
        (signal.SIGKILL, "out_of_memory", True),
        (signal.SIGABRT, "out_of_memory", False),
        (signal.SIGXCPU, "timeout", True),
        (signal.SIGSEGV, "worker_crashed", True),
    ],
)
def test_the_end_of_a_process_by_a_signal(number: signal.Signals, reason: str, retryable: bool) -> None:
    error = ConversionError.from_json(tasks.exit_error(-number).as_json())
    assert (error.code, error.reason, error.retryable) == ("processing_failed", reason, retryable)


@pytest.fixture
def parent() -> Iterator[Path]:
    """A folder that every user can reach, as the temporary folder of tests is not."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def _start(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", _PROGRAM, str(parent)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def _end(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


def test_the_folder_of_a_process_that_was_killed_is_removed(parent: Path) -> None:
    killed, unused = _start(parent)
    _end(killed)
    running, used = _start(parent)

    own = BaseFolder(parent)

    assert not unused.exists()
    assert (used / "1" / "file").exists()
    _end(running)
    own.remove()
    assert not Path(own.path).exists()
    BaseFolder(parent).remove()
    assert not list(parent.iterdir())


def test_other_folders_are_kept(parent: Path) -> None:
    (parent / "convertd-data").mkdir()
    other = parent / "other"
    (other / "content").mkdir(parents=True)
    (parent / "convertd-workers-link").symlink_to(other)
    (parent / "convertd-workers-file").touch()
    names = {path.name for path in parent.iterdir()}
    foreign = parent / "convertd-workers-foreign"
    if os.geteuid() == 0:
        foreign.mkdir()
        os.chown(foreign, 12345, 12345)
        names.add(foreign.name)

    BaseFolder(parent).remove()

    assert {path.name for path in parent.iterdir()} == names
    assert (other / "content").exists()


def test_jobs_of_other_users_can_reach_their_folder(parent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's jobs have users of their own, who cannot reach folders below one that is private."""
    private, temporary = parent / "private", parent / "temporary"
    temporary.mkdir()
    private.mkdir(0o700)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))

    folder = BaseFolder(private / "workers")

    expected = temporary if os.geteuid() == 0 else private / "workers"
    assert Path(folder.path).parent == expected
    folder.remove()
