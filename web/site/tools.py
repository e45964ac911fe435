"""The page of each tool: files in, options by the tool's declaration, the result out."""

from typing import Any

from engine.options import options_schema
from engine.registry import Registry
from web.api.error_catalogue import INFORMATION_WARNINGS
from web.api.errors import NotFound
from web.docs.option_groups import label_of_option
from web.docs.suggestions import is_target
from web.site.pages import WorkPage, tool_page

_ORGANIZER = "pdf-arrange"


class ToolPage(WorkPage):
    """A form for the tool of the path. The one that arranges pages shows them."""

    absence = "There is no such tool."

    async def get(self, name: str) -> None:
        registry = self.services.registry
        tool = next((one for one in registry.tools.values() if tool_page(one) == f"/tools/{name}"), None)
        if tool is None:
            raise NotFound(self.absence)
        access = await self.find_access()

        def values() -> dict[str, Any]:
            schemas = options_schema(registry.tool_options(tool.name))
            given = {
                "name": tool.name,
                "minimum": tool.inputs[0],
                "maximum": tool.inputs[-1],
                "schemas": schemas["properties"],
                "required": schemas["required"],
                "labels": {
                    name: self.locale.translate(label_of_option(name)) for name in (*schemas["properties"], *tool.files)
                },
                "files": {name: {"maximum": one.maximum, "hint": one.description} for name, one in tool.files.items()},
                "information": sorted(INFORMATION_WARNINGS),
                "documents": _document_extensions(registry) if tool.name == _ORGANIZER else [],
            }
            return {
                "tool": tool,
                "organizer": tool.name == _ORGANIZER,
                "access": access,
                "given": given,
            }

        self.write_work_page((name, access["left"]), "tool.html", values)


def _document_extensions(registry: Registry) -> list[str]:
    """The extensions of files that become pages of a PDF first."""
    own = set(registry.tools[_ORGANIZER].accepted)
    others = [fmt for fmt in registry.formats.values() if fmt not in own and is_target(registry, fmt, "pdf")]
    return sorted({extension for fmt in others for extension in fmt.extensions})
