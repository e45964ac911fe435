"""Names of results, and the header that carries them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from web.services.files.files import content_disposition, extension_of, stem


@pytest.mark.parametrize(
    ("client", "result"),
    [
        ("photo.jpg", "photo.webp"),
        ("photo", "photo.webp"),
        ("archive.tar.gz", "archive.tar.webp"),
        ("/etc/passwd", "passwd.webp"),
        ("C:\\Users\\me\\photo.jpg", "photo.webp"),
        ("../../..", "file.webp"),
        ("", "file.webp"),
        (".htaccess", "htaccess.webp"),
        ("a\r\nSet-Cookie: b.jpg", "aSet-Cookie_ b.webp"),
        ('say "hi".png', "say _hi_.webp"),
        ("Häuser am Fluß.png", "Häuser am Fluß.webp"),
        ("photo\u202egpj.exe", "photogpj.webp"),
        ("写真" * 100 + ".jpg", "写真" * 25 + ".webp"),
        ("-rf", "_-rf.webp"),
        ("CON", "_CON.webp"),
        ("nul.tar.gz", "_nul.tar.webp"),
        ("com¹ .jpg", "_com¹.webp"),
        ("\uff4c\uff50\uff54\uff11.jpg", "_\uff4c\uff50\uff54\uff11.webp"),
        ("console.jpg", "console.webp"),
        ("nul-1.jpg", "nul-1.webp"),
        ("%2e%2e%2fa%5Cb%00%0a%252f.jpg", "_2e_2e_2fa_5Cb_00_0a_252f.webp"),
        ("50%20off 100%.jpg", "50%20off 100%.webp"),
        ("a\u2028b\u2029\x85\ud800.jpg", "ab.webp"),
        ("photo. . .jpg", "photo.webp"),
        ("a" * 149 + " b.jpg", "a" * 149 + ".webp"),
    ],
)
def test_names_of_results(client: str, result: str) -> None:
    assert f"{stem(client)}.webp" == result


@pytest.mark.parametrize(
    ("name", "header"),
    [
        ("photo.webp", "attachment; filename=\"photo.webp\"; filename*=UTF-8''photo.webp"),
        ("Häuser.png", "attachment; filename=\"Hauser.png\"; filename*=UTF-8''H%C3%A4user.png"),
        (
            "Отчёт 2.png",
            "attachment; filename=\"Otchet 2.png\"; filename*=UTF-8''%D0%9E%D1%82%D1%87%D1%91%D1%82%202.png",
        ),
        ("\u0301.png", "attachment; filename=\"file.png\"; filename*=UTF-8''%CC%81.png"),
        ("写真.png", "attachment; filename=\"XieZhen.png\"; filename*=UTF-8''%E5%86%99%E7%9C%9F.png"),
        ("\uff0drf.png", "attachment; filename=\"_-rf.png\"; filename*=UTF-8''%EF%BC%8Drf.png"),
        (
            "\uff23\uff2f\uff2e.png",
            "attachment; filename=\"_CON.png\"; filename*=UTF-8''%EF%BC%A3%EF%BC%AF%EF%BC%AE.png",
        ),
        ("a\uff1a\uff0fb.png", "attachment; filename=\"a__b.png\"; filename*=UTF-8''a%EF%BC%9A%EF%BC%8Fb.png"),
        ("100%.png", "attachment; filename=\"100_.png\"; filename*=UTF-8''100%25.png"),
        ("it's (1).png", "attachment; filename=\"it's (1).png\"; filename*=UTF-8''it%27s%20%281%29.png"),
    ],
)
def test_content_disposition(name: str, header: str) -> None:
    assert content_disposition(name) == header


@given(st.text())
def test_file_names_do_not_break_the_header(client: str) -> None:
    name = f"{stem(client)}.png"
    header = content_disposition(name)
    assert name.endswith(".png")
    assert len(name.encode()) < 255
    assert not set("/\\\0\r\n") & set(name)
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2


@pytest.mark.parametrize(("name", "extension"), [("a.JPG", "jpg"), ("a", ""), ("a.b/c", ""), ("a.", "")])
def test_extension_of(name: str, extension: str) -> None:
    assert extension_of(name) == extension
