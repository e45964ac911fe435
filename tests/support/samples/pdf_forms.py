"""A PDF form with a field of each kind."""

from functools import cache
from typing import Any

from pikepdf import Array, Dictionary, Name, Object, Pdf, String

from tests.support.samples.pdf_documents import saved

_BLACK = String("/Helv 12 Tf 0 g")
_REQUIRED = 1 << 1
_MULTILINE = 1 << 12
_RADIO = 1 << 15
_COMBO = 1 << 17
_EDITABLE = 1 << 18
_MULTISELECT = 1 << 21
_COMB = 1 << 24


@cache
def form() -> bytes:
    """A page of 400 x 500 points, whose viewer would make the appearances of its fields."""
    made = Pdf.new()
    page = made.add_blank_page(page_size=(400, 500)).obj
    page.Annots = Array()
    helvetica = Dictionary(Type=Name.Font, Subtype=Name.Type1, BaseFont=Name.Helvetica, Encoding=Name.WinAnsiEncoding)

    def widget(x: int, y: int, width: int, height: int, **keys: Any) -> Object:
        looks = Dictionary(BC=Array([0, 0, 1]), BG=Array([0.95, 0.95, 1]))
        rectangle = Array([x, y, x + width, y + height])
        described: dict[str, Any] = {"Type": Name.Annot, "Subtype": Name.Widget, "Rect": rectangle, "F": 4, "MK": looks}
        added = made.make_indirect(Dictionary(**described | {"DA": _BLACK} | keys))
        page.Annots.append(added)
        return added

    def switch(x: int, state: str, **keys: Any) -> Object:
        made_widget = widget(x, 290, 18, 18, AS=Name.Off, **keys)
        on, off = (made.make_stream(data, Type=Name.XObject, Subtype=Name.Form) for data in (b"0 0 9 9 re f", b""))
        on.BBox = off.BBox = Array([0, 0, 18, 18])
        made_widget.AP = Dictionary(N=Dictionary({f"/{state}": on, "/Off": off}))
        return made_widget

    radio = made.make_indirect(Dictionary(FT=Name.Btn, T=String("color"), Ff=_RADIO, Kids=Array()))
    radio.Opt = Array([String("röd"), String("blå")])
    radio.Kids = Array([switch(90 + 30 * index, str(index), Parent=radio) for index in range(2)])
    person = made.make_indirect(Dictionary(T=String("person"), Kids=Array()))
    person.Kids.append(widget(200, 450, 180, 20, FT=Name.Tx, T=String("name"), Q=1, Parent=person))
    countries = Array([Array([String("NO"), String("Norway")]), Array([String("SE"), String("Sweden")])])
    letters = Array([String(letter) for letter in "abcdefg"])
    red = String("/Helv 0 Tf 1 0 0 rg")
    turned = widget(200, 300, 20, 100, FT=Name.Tx, T=String("turned"))
    turned.MK.R = 90
    fields = [
        widget(20, 450, 160, 20, FT=Name.Tx, T=String("name"), MaxLen=30, TU=String("Your name"), Ff=_REQUIRED),
        widget(20, 380, 160, 60, FT=Name.Tx, T=String("notes"), Ff=_MULTILINE, DA=red),
        widget(20, 350, 160, 20, FT=Name.Tx, T=String("code"), Ff=_COMB, MaxLen=8),
        widget(20, 320, 160, 20, FT=Name.Tx, T=String("fixed"), Ff=1, V=String("constant")),
        switch(20, "Yes", FT=Name.Btn, T=String("agreed")),
        widget(50, 290, 18, 18, FT=Name.Btn, T=String("bare")),
        radio,
        widget(20, 260, 160, 20, FT=Name.Ch, T=String("country"), Ff=_COMBO, Opt=countries),
        widget(20, 230, 160, 20, FT=Name.Ch, T=String("free"), Ff=_COMBO | _EDITABLE, Opt=Array([String("one")])),
        widget(20, 150, 160, 70, FT=Name.Ch, T=String("letters"), Ff=_MULTISELECT, Opt=letters),
        person,
        turned,
    ]
    resources = Dictionary(Font=Dictionary(Helv=made.make_indirect(helvetica)))
    made.Root.AcroForm = Dictionary(Fields=Array(fields), NeedAppearances=True, DR=resources, DA=_BLACK)
    return saved(made)
