"""Request fields and content negotiation."""

import pytest

from web.api.errors import InvalidParameter
from web.api.field_types import validate
from web.api.fields import RegistrationFields
from web.http.responses import wants_json


def registered(email: object, name: object) -> RegistrationFields:
    return validate(RegistrationFields, {"email": email, "name": name})


def registered_name(sent: object) -> str:
    return registered("you@example.com", sent).name


LONGEST = "l" * 64 + "@" + ".".join(["d" * 46] * 4) + "de"  # 254 characters


@pytest.mark.parametrize(
    ("accept", "json"),
    [
        ("", False),
        ("*/*", False),
        ("application/*", False),
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/json, */*", True),
        ("application/json, text/plain, */*", True),
        ("application/json;q=0", False),
        ("application/json;q=0.5, image/webp", False),
        ("application/json;q=0.5, image/*", True),
        ("image/webp;q=0.4, application/json;q=0.5", True),
        ("text/html, application/xhtml+xml", False),
        ("application/json;q=nonsense", False),
        (";;,,;q=", False),
    ],
)
def test_wants_json(accept: str, json: bool) -> None:
    assert wants_json(accept) is json


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("person@example.com", "person@example.com"),
        ("Person@Example.COM", "Person@example.com"),
        (" person@b.test ", "person@b.test"),
        ("a.b+c_d-e@sub.b.example", "a.b+c_d-e@sub.b.example"),
        ("o'brien@b.test", "o'brien@b.test"),
        ("person@B\u00dccher.test", "person@xn--bcher-kva.test"),
        (f"{'l' * 64}@b.test", f"{'l' * 64}@b.test"),
        (LONGEST, LONGEST),
        (f"{LONGEST}e", None),
        (f"{'l' * 65}@b.test", None),
        ("l" * 60 + "@" + ".".join(["d" * 45 + "\u00fc"] * 4), None),
        (f"person@{'d' * 64}.test", None),
        ("person@b.test\n", None),
        ("person@b.test\r\nBcc: victim@b.test", None),
        ("person@b.test\x00", None),
        ("person@b.test, victim@b.test", None),
        ("Person <person@b.test>", None),
        ("<person@b.test>", None),
        ('"a b"@b.test', None),
        ("p\u00e9rson@b.test", None),
        ("person\ud800@b.test", None),
        ("person@\ud800.test", None),
        ("person@localhost", None),
        ("person@printer.local", None),
        ("person@[127.0.0.1]", None),
        ("person@b..test", None),
        ("person@@b.test", None),
        ("person", None),
        ("@b.test", None),
        ("", None),
        ("x" * 60_000, None),
        (7, None),
        (["person@b.test"], None),
    ],
)
def test_email(sent: object, found: str | None) -> None:
    if found is None:
        with pytest.raises(InvalidParameter) as refused:
            registered(sent, "Photo shop")
        assert (refused.value.param, refused.value.reason) == ("email", "malformed")
        assert "b.test" not in str(refused.value)
    else:
        assert registered(sent, "Photo shop").email == found


@pytest.mark.parametrize(
    "sent", ["My App", "ab", "x" * 100, "\u5199\u771f", "\U0001f44d\U0001f3fd", "O'Brien & <b>Co</b>"]
)
def test_name(sent: str) -> None:
    assert registered_name(f" \t{sent}\n ") == sent


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (None, "missing"),
        (7, "malformed"),
        ({"name": "app"}, "malformed"),
        ("", "out_of_range"),
        ("   ", "out_of_range"),
        (" x ", "out_of_range"),
        ("x" * 101, "out_of_range"),
        ("my\x00app", "malformed"),
        ("my\r\napp", "malformed"),
        ("my\x1b[31mapp", "malformed"),
        ("my\u2028app", "malformed"),
        ("my\ud800app", "malformed"),
    ],
)
def test_wrong_names(sent: object, reason: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        registered_name(sent)
    assert (refused.value.param, refused.value.reason) == ("name", reason)


def test_a_missing_address() -> None:
    with pytest.raises(InvalidParameter) as refused:
        registered(None, "Photo shop")
    assert (refused.value.param, refused.value.reason) == ("email", "missing")
