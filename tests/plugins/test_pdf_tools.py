"""What holds for every PDF tool: valid results, pages that look the same, errors for damaged and locked files."""

import pikepdf
import pypdfium2
import pytest

from engine import ConversionError
from engine.mupdf import pymupdf
from tests.support.results.conversions import ToolRun, codes, convert, run_tool
from tests.support.results.pdf_checks import complaints
from tests.support.samples.generated import sample
from tests.support.samples.pdf_documents import READING, REGISTRY, opened, saved
from tests.support.samples.tool_requests import ToolRequest, tool_requests

_REQUESTS = tool_requests()
_WRITING = [name for name, tool in REGISTRY.tools.items() if tool.target.name == "pdf"]


def _run(name: str, request: ToolRequest, data: bytes | None = None, **options: str | bool) -> ToolRun:
    """Runs the request, on another first file if `data` is given."""
    inputs = request.inputs if data is None else (data, *request.inputs[1:])
    return run_tool(name, *inputs, files=request.files, **request.options, **options)


def test_every_tool_has_a_request() -> None:
    assert set(_REQUESTS) == {name for name in REGISTRY.tools if name.startswith("pdf-")}


_CHANGING_ENCRYPTION = ("pdf-archive", "pdf-arrange", "pdf-merge", "pdf-protect", "pdf-unlock")


@pytest.mark.parametrize("name", _WRITING)
def test_results_are_valid(name: str) -> None:
    request = _REQUESTS[name]

    result = _run(name, request)

    assert result.codes <= {"kept_original"}
    assert len(result.files) == request.count
    pages = 0
    for data in result.files.values():
        assert complaints(data) == set()
        with opened(data) as read, pymupdf.open(stream=data) as shown:
            assert len(pypdfium2.PdfDocument(data)) == len(read.pages) == len(shown)
            pages += len(read.pages)
    assert result.outcome.page_count == pages


@pytest.mark.parametrize("name", [name for name, request in _REQUESTS.items() if request.same_pages])
def test_pages_look_the_same(name: str) -> None:
    request = _REQUESTS[name]
    result = _run(name, request).data
    with pymupdf.open(stream=request.inputs[0]) as before, pymupdf.open(stream=result) as after:
        for old, new in zip(before, after, strict=True):
            assert old.get_pixmap().samples == new.get_pixmap().samples


@pytest.mark.parametrize("name", READING)
def test_a_password_opens_the_file(name: str) -> None:
    request = _REQUESTS[name]
    plain = opened(request.inputs[0])
    locked = saved(
        plain, encryption=pikepdf.Encryption(user="user", owner="owner", R=4, allow=pikepdf.Permissions(extract=False))
    )

    for password in ("user", "owner"):
        result = _run(name, request, locked, password=password)
        if name in _WRITING and name not in _CHANGING_ENCRYPTION:
            for data in result.files.values():
                with opened(data, "user") as read:
                    assert not read.allow.extract
                    assert read.is_encrypted
    for wrong in ({}, {"password": "wrong"}):
        with pytest.raises(ConversionError) as raised:
            _run(name, request, locked, **wrong)
        assert (raised.value.code, raised.value.reason) == ("invalid_file_type", "pdf_encrypted")


@pytest.mark.parametrize("name", [name for name in _WRITING if name in READING and name != "pdf-nup"])
def test_active_content_is_told_or_removed(name: str) -> None:
    request = _REQUESTS[name]
    active = opened(request.inputs[0])
    active.pages[0].obj.AA = pikepdf.Dictionary(O=pikepdf.Dictionary(S=pikepdf.Name.JavaScript, JS=pikepdf.String("x")))
    data = saved(active)

    told, removed = _run(name, request, data), _run(name, request, data, sanitize=True)

    assert ("active_content" in told.codes, "active_content" in removed.codes) == (True, False)
    assert all(b"JavaScript" not in _objects(one) for one in removed.files.values())


def _objects(data: bytes) -> bytes:
    with opened(data) as read:
        return saved(read, object_stream_mode=pikepdf.ObjectStreamMode.disable, encryption=False)


def _signed(data: bytes) -> bytes:
    """The document with a signature on its first page, beside its fields."""
    signed = opened(data)
    page = signed.pages[0].obj
    form = signed.Root.get("/AcroForm", pikepdf.Dictionary(Fields=[]))
    value = pikepdf.Dictionary(Type=pikepdf.Name.Sig, Contents=pikepdf.String("x"))
    keys = {"/Type": "/Annot", "/Subtype": "/Widget", "/FT": "/Sig"}
    names = {key: pikepdf.Name(name) for key, name in keys.items()}
    widget = signed.make_indirect(
        pikepdf.Dictionary({**names, "/Rect": [0, 0, 0, 0], "/T": pikepdf.String("s"), "/V": value})
    )
    page.Annots = pikepdf.Array([*page.get("/Annots", ()), widget])
    form.Fields = pikepdf.Array([*form.Fields, widget])
    form.SigFlags = 3
    signed.Root.AcroForm = form
    return saved(signed)


@pytest.mark.parametrize("name", sorted({*_WRITING} & {*READING} - {"pdf-delete-pages", "pdf-sign"}))
def test_broken_signatures_are_told(name: str) -> None:
    request = _REQUESTS[name]

    result = _run(name, request, _signed(request.inputs[0]))

    assert ("signature_invalidated" in result.codes) is ("kept_original" not in result.codes)


@pytest.mark.parametrize("options", [{}, {"metadata": "all"}, {"pages": "1"}, {"pages": "2"}, {"sanitize": True}])
def test_conversions_break_signatures(options: dict[str, str | bool]) -> None:
    data = _signed(_REQUESTS["pdf-rotate"].inputs[0])

    result = convert(data, "pdf", **options)

    assert codes(result) == {"signature_invalidated"}
    with opened(result.data) as changed:
        assert all("/V" not in field for field in changed.Root.get("/AcroForm", {"/Fields": []})["/Fields"])
        assert "/Perms" not in changed.Root
    assert codes(convert(data, "png", pages="2")) == set()


def test_a_file_that_stays_as_it_is_loses_nothing() -> None:
    data = _signed(_REQUESTS["pdf-rotate"].inputs[0])

    for name in ("pdf-ocr", "pdf-unlock"):
        result = run_tool(name, data)
        assert (result.data, result.codes) == (data, {"kept_original"})
    assert run_tool("pdf-unlock", data, sanitize=True).codes == {"signature_invalidated"}


@pytest.mark.parametrize("name", READING)
def test_a_password_that_opens_nothing_is_told(name: str) -> None:
    request = _REQUESTS[name]

    assert "option_ignored" in _run(name, request, password="needless").codes
    assert "option_ignored" not in _run(name, request).codes


def test_a_password_that_opens_one_of_several_files_is_used() -> None:
    first, second = _REQUESTS["pdf-merge"].inputs
    locked = run_tool("pdf-protect", second, user_password="user").data

    assert run_tool("pdf-merge", first, locked, password="user").codes == {"encryption_dropped"}


@pytest.mark.parametrize(
    "name", [name for name in READING if "pages" in REGISTRY.tool_options(name) and name != "pdf-arrange"]
)
def test_ranges_end_at_the_last_page(name: str) -> None:
    request = _REQUESTS[name]
    others = {key: value for key, value in request.options.items() if key not in ("pages", "bookmarks")}

    run_tool(name, *request.inputs, files=request.files, **others, pages="2-")
    for beyond in ("9-", "9", "2-9"):
        with pytest.raises(ConversionError) as raised:
            run_tool(name, *request.inputs, files=request.files, **others, pages=beyond)
        assert (raised.value.param, raised.value.reason) == ("pages", "out_of_range")


def test_repeats_of_a_warning_before_do_not_count_for_an_image() -> None:
    data = run_tool("pdf-from-images", sample("png")).data
    for _ in range(3):  # MuPDF reports repeats of a warning together with the next one.
        pymupdf.mupdf.fz_warn("a warning of another file")

    assert len(run_tool("pdf-extract-images", data).files) == 1
