"""Pages in the browser: what they load is answered here, and nothing else reaches them."""

from __future__ import annotations

import json
import zipfile
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from http import HTTPStatus
from mimetypes import guess_type
from time import monotonic
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from engine import (
    MAX_REQUESTS,
    MAX_SENT,
    FidelityWarning,
    InvalidOption,
    Network,
    OutOfMemory,
    StepFailed,
    WebRequest,
    WebResponse,
    check_size,
    same_origin,
)
from plugins._browser import fonts
from plugins._browser.chromium import Chromium
from plugins._browser.devtools import DevTools, Event
from plugins._browser.options import Browsing
from plugins._text import zip_archives
from plugins._text.markup import named

BASE = "http://archive.invalid/"  # where the files of an archive seem to be
_OWN_HEADERS = frozenset(  # of requests, which the executor sets
    {"host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect"}
    | {"accept-encoding", "range", "if-range", "keep-alive", "proxy-connection"}
)
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_ADD_STYLE = "let s = new CSSStyleSheet; s.replaceSync({}); document.adoptedStyleSheets.push(s)"
_OPEN_DETAILS = """for (const one of document.querySelectorAll("details")) {
    one.removeAttribute("name");  // Of those with one name, only one can be open.
    one.open = true;
}"""
_WAIT = 15.0  # seconds for what the options wait for
_QUIET = 0.5  # seconds without a request, after which the network is idle
_INTERVAL = 0.05  # seconds between two looks for an element
_MAX_SHOWN = 200  # characters of an error of a script


class Content(NamedTuple):
    """A page: its HTML, and the archive that it is in, or the network that it comes from, if any.

    Without a `program`, a browser is started to show it.
    """

    markup: bytes
    archive: zipfile.ZipFile | None
    charset: str | None
    network: Network | None
    program: Chromium | None


@contextmanager
def shown(
    content: Content,
    browsing: Browsing,
    media: str,
    *,
    device_scale: float = 1.0,
    style: str = "",
    templates: str = "",
) -> Iterator[Page]:
    """A page that is loaded. `style` precedes its own style sheets; `media` is what they are for by default.

    `templates` is the HTML of its header and footer. Issues warnings for what the page lacks. Raises ConversionError.
    """
    kept = nullcontext(content.program) if content.program else closing(Chromium())
    with kept as program, program.tab() as tab:
        page = Page(program.tools, content, tab, device_scale)
        page.prepare(browsing, media, browsing.user_agent or program.user_agent)
        page.load(browsing, style, templates)
        yield page
        page.warn()


class Page:
    """A tab of the browser with one page."""

    def __init__(self, tools: DevTools, content: Content, tab: tuple[str, str], device_scale: float) -> None:
        self._tools = tools
        self._content = content
        self._target, self._session = tab
        self._device_scale = device_scale
        self._pending: dict[int, tuple[str, str]] = {}  # requests to the network: identifier of the browser, and URL
        self._requests = 0
        self._latest_request = monotonic()
        self._refused: dict[str, None] = {}
        self._errors: list[str] = []
        self._is_loaded = False
        self._fetched = content.network.page if content.network else None
        self._url = self._fetched.url if self._fetched else f"{BASE}index.html"

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command about this page and returns its result, while what the page asks for is answered."""
        (result,) = self._call_all({method: params})
        return result

    def _call_all(self, commands: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Sends several commands at once, by their methods. Returns their results."""
        results = []
        for number in [self._tools.ask(method, self._session, **params) for method, params in commands.items()]:
            while (result := self._tools.result(number)) is None:
                self._step()
            results.append(result)
        return results

    def prepare(self, browsing: Browsing, media: str, user_agent: str) -> None:
        """Sets what is in force before the page is loaded."""
        width, height = map(int, browsing.viewport.split("x"))
        metrics = {"width": width, "height": height, "deviceScaleFactor": self._device_scale, "mobile": False}
        scheme = {"name": "prefers-color-scheme", "value": "dark" if browsing.dark else "light"}
        commands: dict[str, dict[str, Any]] = {
            "Page.enable": {},
            "Runtime.enable": {},
            "Fetch.enable": {"patterns": [{"urlPattern": "*"}]},
            "Emulation.setDeviceMetricsOverride": metrics,
            "Emulation.setEmulatedMedia": {"media": browsing.media or media, "features": [scheme]},
            "Emulation.setScriptExecutionDisabled": {"value": not browsing.scripts},
            "Emulation.setUserAgentOverride": {"userAgent": user_agent},
            "Network.setCookies": {"cookies": [{**one, "url": self._url} for one in browsing.cookies or ()]},
        }
        self._call_all(commands)

    def load(self, browsing: Browsing, style: str, templates: str) -> None:
        """Loads the page, and waits for what the options wait for. Issues a warning for characters that no font has.

        Raises InvalidOption.
        """
        self.call("Page.navigate", url=self._url)
        while not self._is_loaded:
            self._step()
        if style:
            self._evaluate(_ADD_STYLE.format(json.dumps(style)))
        ends = monotonic() + (int(browsing.wait) / 1000 if browsing.wait.isdecimal() else _WAIT)
        while browsing.wait != "load" and monotonic() < ends:
            if browsing.wait == "network_idle" and not self._pending and monotonic() > self._latest_request + _QUIET:
                break
            self._step(min(_INTERVAL, max(0, ends - monotonic())))
        ends = monotonic() + _WAIT
        while browsing.wait_for and not self._find(browsing.wait_for, "wait_for"):
            if monotonic() > ends:
                raise _not_found("wait_for", browsing.wait_for)
            self._step(_INTERVAL)
        template_text = self._evaluate(f"{fonts.TEXT_OF_TEMPLATE}({json.dumps(templates)})") if templates else ""
        if addition := fonts.addition("".join(self._evaluate_in_frames(fonts.TEXT)), template_text):
            self._evaluate_in_frames(addition)

    def print(self, **settings: Any) -> bytes:
        """A PDF of the page, with the content of closed details, which no click can open there."""
        self._evaluate_in_frames(_OPEN_DETAILS)
        return b64decode(self.call("Page.printToPDF", **settings)["data"])

    def picture(self, *, full_page: bool, selector: str | None) -> bytes:
        """A PNG of the window, of the whole page, or of the first element of a selector.

        Raises InvalidOption and TooLarge.
        """
        metrics = self.call("Page.getLayoutMetrics")
        window, page = metrics["cssVisualViewport"], metrics["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": window["clientWidth"], "height": window["clientHeight"], "scale": 1}
        if selector:
            if not (node := self._find(selector, "selector")):
                raise _not_found("selector", selector)
            model = self.call("DOM.getBoxModel", nodeId=node)["model"]
            left, top, *_ = model["border"]
            clip |= {"x": left + window["pageX"], "y": top + window["pageY"]}
            clip |= {"width": model["width"], "height": model["height"]}
        elif full_page:
            clip |= {"width": page["width"], "height": page["height"]}
        check_size(round(clip["width"] * self._device_scale), round(clip["height"] * self._device_scale))
        settings = {"clip": clip, "captureBeyondViewport": True} if selector or full_page else {}
        return b64decode(self.call("Page.captureScreenshot", format="png", optimizeForSpeed=True, **settings)["data"])

    def warn(self) -> None:
        """Issues warnings for what was not loaded, and for errors of scripts."""
        if self._refused:
            names = named([url.removeprefix(BASE) for url in self._refused])
            FidelityWarning.issue("resource_not_loaded", f"Not loaded: {names}.")
        if self._errors:
            count = f"{len(self._errors)} errors" if len(self._errors) > 1 else "An error"
            FidelityWarning.issue("script_error", f"{count} of scripts: {self._errors[0][:_MAX_SHOWN]}")

    def _evaluate_in_frames(self, expression: str) -> list[Any]:
        """The values of an expression in all frames."""
        values = []
        trees = [self.call("Page.getFrameTree")["frameTree"]]
        for tree in trees:
            trees += tree.get("childFrames", ())
            with suppress(StepFailed):  # a script has removed it
                values.append(self._evaluate(expression, tree["frame"]["id"]))
        return values

    def _evaluate(self, expression: str, frame: str = "") -> Any:
        """The value of an expression in a frame, by default the main one, beside the scripts of the page."""
        world = self.call("Page.createIsolatedWorld", frameId=frame or self._target)["executionContextId"]
        settings = {"contextId": world, "awaitPromise": True, "returnByValue": True}
        return self.call("Runtime.evaluate", expression=expression, **settings)["result"].get("value")

    def _find(self, selector: str, param: str) -> int:
        """The number of the first element of a CSS selector; 0 if there is none. Raises InvalidOption."""
        root = self.call("DOM.getDocument", depth=0)["root"]["nodeId"]
        try:
            return int(self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"])
        except StepFailed:
            raise InvalidOption(f"{param} must be a selector of CSS.", reason="malformed", param=param) from None

    def _step(self, seconds: float | None = None) -> None:
        """Waits until something happens, at most so many seconds, and answers it."""
        network = self._content.network
        if not self._tools.events:
            others = [network.fileno()] if network and self._pending else []
            if self._tools.wait(seconds, *others) and network:
                for response in network.receive():
                    self._pass(response)
        while self._tools.events:
            self._handle(self._tools.events.popleft())

    def _handle(self, event: Event) -> None:
        if event.session != self._session:  # The event is of an earlier page.
            return
        match event.method:
            case "Fetch.requestPaused":
                self._answer(event.params)
            case "Page.loadEventFired":
                self._is_loaded = True
            case "Page.frameStoppedLoading":  # the only event if another page was to be loaded meanwhile, and is not
                self._is_loaded |= event.params["frameId"] == self._target and self._requests > 0
            case "Page.javascriptDialogOpening":
                self._tools.send("Page.handleJavaScriptDialog", self._session, accept=False)
            case "Runtime.exceptionThrown":
                details = event.params["exceptionDetails"]
                self._errors.append(details.get("exception", {}).get("description") or details["text"])
            case "Inspector.targetCrashed":
                raise OutOfMemory("The page exceeded the memory limit of the browser.")

    def _answer(self, params: Mapping[str, Any]) -> None:
        """Answers a request of the page: with the page itself, a file of the archive, or by the network."""
        identifier, url = params["requestId"], params["request"]["url"]
        content = self._content
        self._requests += 1
        self._latest_request = monotonic()
        if self._requests == 1:
            charset = f"; charset={content.charset}" if content.charset else ""
            status, headers = (self._fetched.status, self._fetched.headers) if self._fetched else (HTTPStatus.OK, ())
            kind = next((value for name, value in headers if name.lower() == "content-type"), "")
            kind = kind if kind.startswith(_PAGE_TYPES) else f"text/html{charset}"
            others = [one for one in headers if one[0].lower() != "content-type"]
            self._fulfill(identifier, status, [*others, ("Content-Type", kind)], content.markup)
        elif content.archive and url.startswith(BASE):
            path = urlsplit(url).path
            found = zip_archives.read_file(content.archive, path)
            if found is None:
                self._refuse(identifier, url, params["resourceType"])
            else:
                kind = guess_type(path)[0] or "application/octet-stream"
                self._fulfill(identifier, HTTPStatus.OK, [("Content-Type", kind)], found)
        elif content.network and self._requests < MAX_REQUESTS and url.startswith(("http://", "https://")):
            self._forward(content.network, params)
        else:
            self._refuse(identifier, url, params["resourceType"])

    def _forward(self, network: Network, params: Mapping[str, Any]) -> None:
        """Makes a request of the page by the network."""
        request = params["request"]
        url: str = request["url"]
        body = b"".join(b64decode(part.get("bytes", "")) for part in request.get("postDataEntries", ()))
        if len(body) > MAX_SENT:
            self._refuse(params["requestId"], url)
            return
        sent = dict(self._fetched.sent) if self._fetched and same_origin(url, self._fetched.url) else {}
        replaced = _OWN_HEADERS.union(map(str.lower, sent))
        headers = {name: value for name, value in request["headers"].items() if name.lower() not in replaced} | sent
        self._pending[self._requests] = params["requestId"], url
        network.send(WebRequest(self._requests, request["method"], url, tuple(headers.items()), body))

    def _pass(self, response: WebResponse) -> None:
        """Passes a response of the network on to the page."""
        identifier, url = self._pending.pop(response.number)
        self._latest_request = monotonic()
        if response.failure:
            self._refuse(identifier, url)
            return
        if response.status >= HTTPStatus.BAD_REQUEST:
            self._refused[url] = None
        self._fulfill(identifier, response.status, response.headers, response.body)

    def _fulfill(self, identifier: str, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        response = {
            "responseCode": status,
            "responseHeaders": [{"name": name, "value": value} for name, value in headers],
            "body": b64encode(body).decode(),
        }
        self._tools.send("Fetch.fulfillRequest", self._session, requestId=identifier, **response)

    def _refuse(self, identifier: str, url: str, kind: str = "") -> None:
        """Lets a request fail. One for a document gets an empty response, upon which the frame stays as it is."""
        self._refused[url] = None
        if kind == "Document":
            self._fulfill(identifier, HTTPStatus.NO_CONTENT, [], b"")
        else:
            self._tools.send("Fetch.failRequest", self._session, requestId=identifier, errorReason="BlockedByClient")


def _not_found(param: str, selector: str) -> InvalidOption:
    return InvalidOption(f"The page has no element {selector}.", reason="nothing_found", param=param)
