"""The API console: Swagger UI with the OpenAPI document, where the package that carries Swagger UI is installed."""

from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

from web.api.operations import Route
from web.services.container import Services
from web.site.pages import POLICY, PUBLIC_PAGE, PageHandler, StaticFile

CONSOLE_PATH = "/docs/console"


def console_folder() -> Path | None:
    """The folder with the files of Swagger UI, if they are installed."""
    package = find_spec("flask_swagger_ui")  # it is not imported, as it would load Flask
    return Path(package.origin).with_name("dist") if package and package.origin else None


class Console(PageHandler):
    """A page with a form for each operation of the API."""

    # The style sheet of Swagger UI contains its icons.
    fixed_headers = MappingProxyType(
        {**PUBLIC_PAGE, "Content-Security-Policy": POLICY.replace("img-src 'self'", "img-src 'self' data:")}
    )
    translated = False

    async def get(self) -> None:
        self.write_page("docs/console.html")


class ConsoleFile(StaticFile):
    """A file of Swagger UI."""

    def initialize(self, services: Services, route: Route, **_: Any) -> None:  # type: ignore[override]
        super().initialize(services, route, str(console_folder()))

    def set_extra_headers(self, path: str) -> None:
        self.set_header("Cache-Control", "no-cache")
