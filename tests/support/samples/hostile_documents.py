"""Hostile SVGs, PDFs, HTML and images of text: deep nesting, wrong encodings, very many elements, open strings."""

from io import BytesIO

import pikepdf


def svg(body: str, attributes: str = 'width="100" height="100"') -> bytes:
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"<svg {names} {attributes}>{body}</svg>".encode()


def nested_svgs() -> dict[str, bytes]:
    """SVGs that are nested too deeply, by name."""
    rule = f"a{{width:{'calc(' * 5000}1px{')' * 5000}}}"
    return {
        **{f"svg_deep_{levels}": svg("<g>" * levels + "</g>" * levels) for levels in (201, 50_000)},
        "svg_deep_style": svg("<style>" + "@media all{" * 5000 + "}" * 5000 + "</style>"),
        "svg_deep_value": svg(f"<style>{rule}</style>"),
    }


def chained_svgs() -> dict[str, bytes]:
    """SVGs whose patterns, or clip paths, refer to each other in a chain that no EPS can hold, by name."""
    pattern = '<pattern id="n{}" width="9" height="9" patternUnits="userSpaceOnUse"><path d="M0 0H8V8" {}/></pattern>'
    clip = '<clipPath id="n{}" {}><rect width="90" height="90"/></clipPath>'
    return {
        **{f"svg_chain_of_{count}_patterns": _chain(pattern, "fill", count) for count in (11, 600)},
        "svg_chain_of_clip_paths": _chain(clip, "clip-path", 3000),
    }


def _chain(element: str, attribute: str, count: int) -> bytes:
    references = [f'{attribute}="url(#n{number})"' for number in range(count)]
    elements = map(element.format, range(count), [*references[1:], ""])
    return svg(f"{''.join(elements)}<rect width='99' height='99' {references[0]}/>")


def broken_texts() -> dict[str, bytes]:
    """SVGs whose text is not in the encoding that they state, by name."""
    text = svg("<text>a</text>").decode()
    wide, declared = text.encode("utf-16"), b'<?xml version="1.0" encoding="UTF-16"?>' + text.encode()
    return {
        "svg_utf_16_odd": wide[:-1],
        "svg_utf_16_surrogate": wide.replace("a<".encode("utf-16-le"), b"\x00\xd8A\x00<\x00"),
        "svg_utf_16_tail": wide + b"\x3d\xd8",
        "svg_utf_16_declared": declared,
        "svg_unknown_encoding": declared.replace(b"UTF-16", b"x"),
    }


def flat_pdf(count: int) -> bytes:
    """A PDF with all pages in one list, without index."""
    kids = b" ".join(b"%d 0 R" % number for number in range(3, 3 + count))
    pages = b"".join(b"%d 0 obj<</Type/Page/Parent 2 0 R/Resources<<>>>>endobj\n" % n for n in range(3, 3 + count))
    tree = b"2 0 obj<</Type/Pages/MediaBox[0 0 50 50]/Count %d/Kids[%s]>>endobj\n" % (count, kids)
    catalog = b"1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    return b"%PDF-1.4\n" + catalog + tree + pages + b"trailer<</Root 1 0 R>>\nstartxref\n0\n%%EOF\n"


def repeated_page(count: int) -> bytes:
    """A PDF with one page, which is in the list of pages many times."""
    file = BytesIO()
    with pikepdf.new() as document:
        document.add_blank_page(page_size=(50, 50))
        document.Root.Pages.Kids = pikepdf.Array([document.pages[0].obj] * count)
        document.Root.Pages.Count = count
        document.save(file)
    return file.getvalue()


def open_texts() -> dict[str, bytes]:
    """Images of text with very many strings, comments or arrays that do not end, by name."""
    xbm, xpm = b"#define x_width 8\n#define x_height 8\n", b'/* XPM */\n"2 2 1 1", "a c #000000",'
    return {
        "xbm_open_array": xbm + b"char x[] {" * 100_000,
        "xbm_open_declaration": xbm + b"static short " * 100_000,
        "xpm_open_string": xpm + b'"' + b'\\"' * 200_000,
        "xpm_open_comment": xpm + b"/* " * 200_000,
    }


def crowded_pages() -> dict[str, bytes]:
    """HTML with too many elements, or columns of tables, by name."""
    return {
        "html_elements": b"<!DOCTYPE html>" + b"<p>a" * 20_001,
        "html_columns": b"<!DOCTYPE html><table><tr><td colspan=100000000>a</table>",
        "html_fonts": _page("".join(f"@font-face{{font-family:f{n};src:url(data:,x)}}" for n in range(501)), "<p>a"),
        "html_columns_of_columns": b"<!DOCTYPE html><table><col span=99999><tr><td>a</table>",
    }


def _page(style: str, body: str) -> bytes:
    return f"<!DOCTYPE html><style>{style}</style>{body}".encode()


SLOW_PAGES = {
    "flex": _page("", "<div style=display:flex>" * 60),
    "columns": _page("", "<div style=columns:2>" * 15 + "a"),
    "variables": _page(
        f"p{{--v0:1px;{''.join(f'--v{n}:var(--v{n - 1}) var(--v{n - 1});' for n in range(1, 40))}margin:var(--v39)}}",
        "<p>a",
    ),
    "rules": _page("".join(f"p:nth-of-type({n}n+1){{margin:{n % 5}px}}" for n in range(5000)), "<p>a" * 5000),
    "gradient": _page("div{height:900px;background:repeating-linear-gradient(red 0,blue .0001px)}", "<div></div>"),
    "pages": _page("@page{size:1mm 1mm;margin:0}", "word " * 20_000),
    "counters": _page("p{counter-increment:c}p::before{content:" + "counter(c) " * 5000 + "}", "<p></p>" * 19_000),
    "tabs": _page("", "<pre style=tab-size:100000000>\t\ta"),  # in one call of C code, as the next one
    "marks": _page("", "a" + "\u0301" * 100_000),
    "symbols": _page(
        "@counter-style s{system:symbolic;symbols:x}p{counter-increment:c 100000000}p::before{content:counter(c,s)}",
        "<p></p>" * 20,
    ),
}
"""HTML of at most some hundred KiB that takes minutes or gigabytes to lay out, by what takes them."""
