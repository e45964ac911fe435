"""The search of the documentation finds what people look for by the words that they use."""

import re
from html import unescape
from urllib.parse import quote

from tests.support.requests import http
from tests.support.servers.in_process import Running

FOUND = {  # anchors that are among the first results
    "exif": ("option-metadata", "recipe-location"),
    "thumbnail": ("recipe-thumbnail",),
    "strip gps": ("recipe-location", "option-metadata"),
    "under 200 kB": ("recipe-limit", "option-max_bytes"),
    "serial numbers": ("recipe-location", "option-metadata"),
    "idempotency-key": ("repeating",),
    "no_credits": ("no_credits",),
    "webhook signature": ("webhooks",),
    "gdpr": ("privacy",),
    "how do I resize": ("option-width",),
    "compressing an image": ("recipe-limit",),
    "rate limits": ("limits",),
    "async": ("jobs",),
    "api key": ("authentication",),
    "pictures to pdf": ("recipe-document",),
    "quickstart": ("quickstart",),
    "deprecation policy": ("versions",),
}


def anchors(server: Running, query: str) -> list[str]:
    """The anchors of the results, the best first."""
    text = http.get(f"{server.url}/docs/search?q={quote(query)}").text
    results = text.partition('id="results-list"')[2].partition("</ol>")[0]
    return [unescape(anchor) for anchor in re.findall(r'href="[^"#]*#([^"]+)"', results)]


def test_what_people_call_it(server: Running) -> None:
    places = {query: [anchors(server, query).index(one) for one in wanted] for query, wanted in FOUND.items()}
    assert {query: found for query, found in places.items() if max(found) >= 5} == {}


def test_what_is_not_found_and_what_is_no_expression(server: Running) -> None:
    for query in ("", "zzzqq", '"', "AND OR NOT", "a*", "<script>x", "é" * 300, "-", "NEAR(x"):
        response = http.get(f"{server.url}/docs/search?q={quote(query)}")
        assert response.status_code == 200
        assert "<script>x" not in response.text
    assert "Nothing found for “zzzqq”." in http.get(f"{server.url}/docs/search?q=zzzqq").text


def test_results_lead_to_entries(server: Running) -> None:
    text = http.get(f"{server.url}/docs/search?q=webhook").text
    links = re.findall(r'<li><a href="([^"#]*)\?q=webhook#([^"]+)"', text)
    assert len(links) > 5
    for path, anchor in links:
        assert f' id="{anchor}"' in http.get(server.url + path).text
    assert "<mark>" in text
    assert "`" not in text
