"""Files about the site: for search engines, agents, phones, and people who have found a vulnerability."""

import json
import time
from datetime import UTC, datetime
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

from web.api.errors import NotFound
from web.api.values import API
from web.docs.postman import collection
from web.locale.languages import LANGUAGES
from web.site.docs import docs_pages
from web.site.pages import PUBLIC_PAGE, PageHandler, tool_page

_TEXT = "text/plain; charset=utf-8"
_YEAR = 365 * 86_400  # seconds


class SiteFile(PageHandler):
    """A file that is made of the catalogue and the settings."""

    fixed_headers = PUBLIC_PAGE

    def write_file(self, media_type: str, text: str) -> None:
        """Responds with the text."""
        self.set_header("Content-Type", media_type)
        self.write(text)


class Sitemap(SiteFile):
    """The pages that search engines should know."""

    async def get(self) -> None:
        docs = [page.path for page in docs_pages(await self.services.documents())]
        tools = [tool_page(tool) for tool in self.services.registry.tools.values()]
        register = [] if self.services.settings.registration == "closed" else ["/register"]
        translated = [
            f"{path}{query}"
            for path in ("/", *tools, *register)
            for query in ("", *(f"?lang={code}" for code in LANGUAGES))
        ]
        urls = "".join(f"<url><loc>{escape(self.site + path)}</loc></url>" for path in (*translated, *docs))
        sitemap = f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'
        self.write_file("application/xml", f'<?xml version="1.0" encoding="UTF-8"?>\n{sitemap}\n')


class PostmanCollection(SiteFile):
    """The API as a collection of requests."""

    async def get(self) -> None:
        document = (await self.services.documents()).openapi.data
        self.write_file("application/json", json.dumps(collection(document), ensure_ascii=False))


class SecurityText(SiteFile):
    """Whom to tell of a vulnerability (RFC 9116), if the operator names a contact."""

    absence = "The operator of this server has named no contact."

    async def get(self) -> None:
        contact = self.services.settings.operator.contact_url
        if not contact:
            raise NotFound(self.absence)
        expires = datetime.fromtimestamp(time.time() + _YEAR, UTC)
        canonical = f"{self.site}/.well-known/security.txt"
        self.write_file(_TEXT, f"Contact: {contact}\nExpires: {expires:%Y-%m-%dT%H:%M:%SZ}\nCanonical: {canonical}\n")


class LlmsText(SiteFile):
    """What language models should read to use the service."""

    async def get(self) -> None:
        pages = docs_pages(await self.services.documents())
        docs = [f"- [{page.title}]({self.site}{page.path}): {page.description}" for page in pages]
        tools = [
            f"- [{tool.title}]({self.site}{tool_page(tool)}): {tool.summary}"
            for tool in self.services.registry.tools.values()
        ]
        lines = [
            "# convertd",
            "",
            "> Converts Office documents, PDFs, images, camera RAW files, vector graphics and clips, and edits PDFs.",
            "",
            f"- [OpenAPI document]({self.site}{API}/openapi.json)",
            f"- [Formats]({self.site}{API}/formats) and [tools]({self.site}{API}/tools) as JSON",
            f"- Model Context Protocol: {self.site}/mcp",
            "",
            "## Docs",
            "",
            *docs,
            "",
            "## Tools",
            "",
            *tools,
        ]
        self.write_file(_TEXT, "\n".join(lines) + "\n")


class Manifest(SiteFile):
    """How phones install the site."""

    async def get(self) -> None:
        icon = {"src": self.static_url("mark.svg"), "sizes": "any", "type": "image/svg+xml"}
        colors = {"background_color": "#faf9f6", "theme_color": "#0a6b58"}
        name = urlsplit(self.site).hostname
        manifest = {
            "name": "convertd",
            "description": f"Converts files at {name}.",
            "start_url": f"{self.base_path}/",
            **colors,
        }
        self.write_file("application/manifest+json", json.dumps({**manifest, "display": "standalone", "icons": [icon]}))
