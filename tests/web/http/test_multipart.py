"""Multipart forms: well-formed, malformed and truncated."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine import sandbox
from engine.errors import InvalidOption, UnknownFormat
from engine.executor.detector import Detector
from engine.executor.local import SingleWorker
from engine.registry import load_registry
from tests.support.requests import http
from tests.support.requests.checks import problem
from tests.support.samples.forms import BOUNDARY, FILE, FORM, TARGET, form, image, part
from tests.support.servers.in_process import Running, eventually
from web.api.errors import FileTooLarge, InvalidParameter
from web.api.operations import FileField
from web.http.multipart import Form, MultipartBody
from web.services.files.work_files import WorkFiles


def post(server: Running, body: bytes, headers: dict[str, str] = FORM) -> httpx.Response:
    return http.post(f"{server.api}/convert", content=body, headers={**headers, **server.auth})


def work_files(folder: Path) -> WorkFiles:
    made = WorkFiles(folder)
    made.prepare()
    return made


@contextmanager
def reader(files: WorkFiles, max_file_size: int = 1 << 20) -> Iterator[MultipartBody]:
    made = MultipartBody(
        BOUNDARY.encode(),
        [FileField("file", "The file.")],
        ("output_format",),
        max_file_size=max_file_size,
        create_file=lambda: files.create("account"),
        detector=Detector(load_registry(), SingleWorker(sandbox.LAYERS, ())),
    )
    try:
        yield made
    finally:
        made.close()


@contextmanager
def read(folder: Path, body: bytes, step: int = 1 << 16) -> Iterator[Form]:
    with reader(work_files(folder)) as found:

        async def feed() -> None:
            for at in range(0, len(body), step):
                await found.write(body[at : at + step])

        asyncio.run(feed())
        yield found.form


@pytest.mark.parametrize(
    "body",
    [
        form(FILE, TARGET),
        form(TARGET, FILE),
        form(part(image(), 'name="file"'), TARGET),
        form(part(image(), 'name="file"; filename=""'), TARGET),
        b"\r\n" + form(FILE, TARGET) + b"an epilogue",
    ],
)
def test_accepted(server: Running, body: bytes) -> None:
    assert post(server, body).status_code == 200


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        (b"", None, "truncated"),
        (b"no form at all", None, "malformed"),
        (form(), "file", "missing"),
        (form(TARGET), "file", "missing"),
        (form(FILE, FILE, TARGET), "file", "duplicate"),
        (form(FILE, TARGET, TARGET), "output_format", "duplicate"),
        (form(FILE, TARGET, end=False), None, "truncated"),
        (form(FILE, TARGET)[:-6], None, "truncated"),
        (form(FILE, TARGET)[:200], None, "truncated"),
        (form(FILE, part(b"x" * 66_000, 'name="output_format"')), "output_format", "too_long"),
        (form(FILE, part(b"\xff\xfe", 'name="output_format"')), "output_format", "encoding"),
        (form(*[part(b"", 'name="file"')] * 129), None, "too_many_parts"),
        (form(FILE, TARGET, part(b"80", 'name="qualty"')), "qualty", "unknown_parameter"),
        (form(FILE, TARGET, part(b"x", 'name="picture"; filename="x.png"')), "picture", "unknown_parameter"),
        (form(part(b"x", 'filename="nameless"')), None, "malformed"),
        (form(part(b"x", f'name="{"n" * 5000}"')), None, "malformed"),
        (f"--{BOUNDARY}\r\n".encode() + b"A: b\r\n" * 50 + b"\r\n", None, "malformed"),
        (f"--{BOUNDARY}\r\n\r\nno headers\r\n".encode(), None, "malformed"),
    ],
)
def test_refused(server: Running, body: bytes, param: str | None, reason: str) -> None:
    response = post(server, body)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (400, "invalid_parameter")
    assert (error.get("param"), error["reason"]) == (param, reason)
    assert eventually(lambda: not server.work_files())


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "application/json",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=a",
        f"multipart/form-data; boundary={'b' * 300}",
    ],
)
def test_other_content_types(server: Running, content_type: str | None) -> None:
    response = post(server, form(FILE, TARGET), {"Content-Type": content_type} if content_type else {})
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_parameter"
    assert eventually(lambda: not server.work_files())


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99])
def test_a_disconnect_removes_uploaded_files(server: Running, share: float) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    body = form(part(image("BMP", (1200, 900)), 'name="file"; filename="a.bmp"'), TARGET)
    head = f"{server.posting}Content-Type: {FORM['Content-Type']}\r\n"
    with server.connect() as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode())
        connection.sendall(body[: int(len(body) * share)])
        assert eventually(lambda: bool(server.work_files()))
    assert eventually(lambda: not server.work_files() and len(list(descriptors.iterdir())) <= before)


async def test_a_file_has_at_most_the_size_of_the_limit(tmp_path: Path) -> None:
    disposition = 'name="file"; filename="a.bin"'
    with reader(work_files(tmp_path), max_file_size=1000) as found:
        await found.write(form(part(bytes(1000), disposition)))
        assert found.form.file("file").size == 1000
    with reader(work_files(tmp_path), max_file_size=1000) as found, pytest.raises(FileTooLarge):
        await found.write(form(part(bytes(1001), disposition)))


def test_uploads_are_identified(tmp_path: Path) -> None:
    body = form(part(image(), 'name="file"; filename="a.bin"'), part(b"\0", 'name="file"'), part(b"", 'name="file"'))
    with read(tmp_path, body) as read_form:
        first, *others = read_form.uploads("file")
    assert first.format.name == "jpeg"
    for upload, reason in zip(others, ("unrecognized", "empty_file"), strict=True):
        with pytest.raises(UnknownFormat) as unknown:
            assert upload.format
        assert unknown.value.reason == reason


async def test_a_large_file_is_identified(tmp_path: Path) -> None:
    large = image("BMP", (1000, 1000))
    with reader(work_files(tmp_path), max_file_size=4 << 20) as found:
        await found.write(form(part(large, 'name="file"; filename="a.bin"')))
        upload = found.form.file("file")
        assert (upload.format.name, upload.size, upload.file.in_memory) == ("bmp", len(large), False)
        assert upload.file.read() == large


@pytest.mark.parametrize(
    ("disposition", "filename"),
    [
        ('name="file"; filename="photo.JPG"', "photo.JPG"),
        ('name="file"; filename="../../etc/passwd"', "../../etc/passwd"),
        ('name="file"; filename="Häuser.png"', "Häuser.png"),
        ("name=\"file\"; filename*=UTF-8''H%C3%A4user.png", "Häuser.png"),
        ("name=file; filename=\"=?utf-8?B?SMOk?=\"; filename*=utf-8''H%C3%A4user.png", "Häuser.png"),
        ('name="file"; filename="a.tar.gz;x"', "a.tar.gz;x"),
        ('name="file"; filename="a; filename*=utf-8\'\'x.png"', "a; filename*=utf-8''x.png"),
        ('name="file"', "file"),
    ],
)
def test_file_names(tmp_path: Path, disposition: str, filename: str) -> None:
    with read(tmp_path, form(part(b"x", disposition))) as read_form:
        assert read_form.file("file").filename == filename
    assert list(tmp_path.iterdir()) == []


@given(content=st.binary(max_size=300), step=st.integers(1, 64))
def test_contents_do_not_depend_on_chunks(tmp_path_factory: pytest.TempPathFactory, content: bytes, step: int) -> None:
    tricky = content + f"\r\n--{BOUNDARY[:-1]}".encode() + content
    assume(BOUNDARY.encode() not in tricky)  # it would end the part
    body = form(part(tricky, 'name="file"; filename="a.bin"'), TARGET)
    with read(tmp_path_factory.mktemp("form"), body, step) as read_form:
        assert read_form.file("file").file.read() == tricky
        assert read_form.texts == {"output_format": "png"}


@pytest.mark.parametrize("step", [7, 1 << 16])
def test_lines_that_begin_with_the_boundary_are_limited(tmp_path: Path, step: int) -> None:
    """The parser examines what follows each of them, which takes long if there are many."""
    line = f"\r\n--{BOUNDARY}y".encode()
    with read(tmp_path / "few", form(part(line * 900, 'name="file"; filename="a.bin"')), step) as read_form:
        assert read_form.file("file").file.read() == line * 900
    with pytest.raises(InvalidParameter) as many, read(tmp_path / "many", form(part(line * 1001, 'name="file"')), step):
        pass
    assert many.value.reason == "too_many_parts"


@given(noise=st.binary(max_size=200), at=st.integers(0, 400))
def test_noise_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    body = form(part(b"content", 'name="file"; filename="a.bin"'), TARGET)
    with (
        suppress(InvalidParameter, InvalidOption, FileTooLarge),
        read(tmp_path_factory.mktemp("form"), body[:at] + noise + body[at + len(noise) :]),
    ):
        pass


def test_options_with_a_body(server: Running) -> None:
    url = f"{server.api}/convert"
    assert http.request("OPTIONS", url, files={"file": ("photo.jpg", image())}).status_code == 204
    problem(http.request("OPTIONS", url, content=bytes(70_000)), 413, "file_too_large")
