"""Fuzzing with damaged files and forms: each leads to a result or a documented error within a time limit.

`--fuzz-seconds` sets how long all of them take.
"""

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from engine import ConversionError, InvalidOption, sandbox
from engine.executor import LocalExecutor, Task, TaskLimits
from engine.executor.detector import Detector
from engine.executor.local import SingleWorker
from engine.registry import load_registry
from tests.support.executors.isolated import FileJob, run_files
from tests.support.samples.generated import sample
from tests.support.samples.mutations import MutatedFile, mutated
from tests.support.samples.pairs import pairs_with_samples
from web.api.errors import ApiError
from web.api.operations import FileField
from web.http.multipart import MultipartBody
from web.services.files.work_files import WorkFiles

pytestmark = pytest.mark.slow

_REGISTRY = load_registry()
_LIMITS = TaskLimits(seconds=60)  # Wall time that even a busy machine does not use up.
_OURS = {"done", "file_too_large", "invalid_file_type", "processing_failed"}
_FAULTS = {"engine_error", "worker_crashed", "timeout"}
_BATCH = 4
_HEAD = (
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
    b'\x89PNG\r\n--b\r\nContent-Disposition: form-data; name="output_format"\r\n\r\njpeg\r\n--b--\r\n'
)
_FORMS = {
    "plain": _HEAD,
    "extended": _HEAD.replace(b'filename="a.png"', b"filename*=UTF-8''%e4%bd%a0.png"),
    "quoted": _HEAD.replace(b"a.png", b'a\\"\\\\;name=x'),
}


def _samples() -> dict[str, bytes]:
    return {plan.source.name: sample(plan.source.name) for plan in pairs_with_samples()}


@pytest.fixture(scope="module")
def executor() -> Iterator[tuple[asyncio.AbstractEventLoop, LocalExecutor]]:
    """An executor with two workers and its event loop: hypothesis calls synchronous functions."""
    loop = asyncio.new_event_loop()
    made = LocalExecutor(2)
    loop.run_until_complete(made.start())
    yield loop, made
    loop.run_until_complete(made.close())
    loop.close()


def _for_a_while(seconds: float, strategy: st.SearchStrategy[Any], examine: Callable[[Any], None]) -> None:
    """Runs examples until the time is over. Starts with the same ones; failures are shrunk and reported."""
    ends = monotonic() + seconds
    for number in count():
        if monotonic() >= ends:
            break

        @seed(number)
        @settings(
            max_examples=50,
            deadline=None,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        )
        @given(strategy)
        def round_of_examples(example: Any) -> None:
            if monotonic() < ends:
                examine(example)

        round_of_examples()


def test_identification(fuzz_seconds: float) -> None:
    """Identification runs in the server process: it must be fast and raise no other error."""

    def examine(example: MutatedFile) -> None:
        try:
            assert _REGISTRY.identify_content(example.data, "a.nef").name in _REGISTRY.formats
        except ConversionError as error:
            assert error.code == "invalid_file_type"  # noqa: PT017

    _for_a_while(fuzz_seconds / 4, mutated(_samples()), examine)


def test_forms(fuzz_seconds: float) -> None:
    async def feed(reader: MultipartBody, body: bytes, size: int) -> None:
        for at in range(0, len(body), size):
            await reader.write(body[at : at + size])

    def examine(example: tuple[MutatedFile, int]) -> None:
        form, size = example
        with TemporaryDirectory() as folder:
            work_files = WorkFiles(Path(folder))
            reader = MultipartBody(
                b"b",
                [FileField("file", "The file.")],
                ("output_format",),
                max_file_size=1 << 20,
                create_file=lambda: work_files.create("account"),
                detector=Detector(_REGISTRY, SingleWorker(sandbox.LAYERS, ())),
            )
            try:
                asyncio.run(feed(reader, form.data, size))
                for upload in reader.form.uploads("file"):
                    assert upload.file.size == upload.size
            except (ApiError, InvalidOption):
                return
            finally:
                reader.close()
            assert not list(Path(folder).iterdir())

    _for_a_while(fuzz_seconds / 4, st.tuples(mutated(_FORMS), st.integers(1, 200)), examine)


def test_decoders(fuzz_seconds: float, executor: tuple[asyncio.AbstractEventLoop, LocalExecutor]) -> None:
    """Each decoder in a worker process. Errors of convertd itself are failures of the test."""
    loop, jobs = executor

    async def one(folder: Path, data: bytes, target: str) -> tuple[str, str]:
        source, result = folder / "in", folder / "job" / "out"
        result.parent.mkdir(parents=True)
        await asyncio.to_thread(source.write_bytes, data)
        try:
            found = _REGISTRY.identify(source)
            plan = _REGISTRY.plan([found], _other(found.name, target))
            await run_files(jobs, FileJob(Task.of(plan), [source], result), _LIMITS)
        except ConversionError as error:
            return error.code, error.reason or ""
        return "done", ""

    async def all_of(files: list[MutatedFile], target: str) -> list[tuple[str, str]]:
        with TemporaryDirectory() as folder:
            return await asyncio.gather(*(one(Path(folder, str(n)), file.data, target) for n, file in enumerate(files)))

    def examine(example: tuple[list[MutatedFile], str]) -> None:
        for outcome, reason in loop.run_until_complete(all_of(*example)):
            assert outcome in _OURS
            assert reason not in _FAULTS

    batch = st.lists(mutated(_samples()), min_size=_BATCH, max_size=_BATCH)
    _for_a_while(fuzz_seconds / 2, st.tuples(batch, st.sampled_from(("jpeg", "png", "tiff", "pdf"))), examine)


def _other(source: str, target: str) -> str:
    return target if target != source else "bmp"
