"""/pdf: documents put through a tool."""

from __future__ import annotations

from storage.usage import Operation
from web.errors import InvalidParameter
from web.fields import form_options
from web.forms import FormHandler
from web.orders import OrderHandler
from web.services.orders import Order, Upload


class _PdfTool(OrderHandler, FormHandler):
    async def put_through(self, tool: str, operation: Operation, uploads: tuple[Upload, ...], name: str = "") -> None:
        """Puts the documents through the tool, and answers."""
        described = self.wants_json()
        order = Order(
            account=self.client(),
            operation=operation,
            uploads=uploads,
            target="pdf",
            options=form_options(self.form().fields),
            tool=tool,
            name=name,
            keep=described,
            repeatable=self.repeatable(),
        )
        await self.carry_out(order, described=described)


class Merge(_PdfTool):
    """Several documents as one, in the order in which they are sent."""

    file_fields = ("files[]", "files")
    text_fields = ("password",)
    max_files = 20

    async def post(self) -> None:
        await self.unless_gone(self._merge())

    async def _merge(self) -> None:
        await self.put_through("pdf-merge", "pdf_merge", self.form().uploads, "merged.pdf")


class DeletePages(_PdfTool):
    """A document without some of its pages."""

    text_fields = ("pages", "password")

    async def post(self) -> None:
        await self.unless_gone(self._delete())

    async def _delete(self) -> None:
        form = self.form()
        upload = form.file("file")
        if "pages" not in form.fields:
            raise InvalidParameter("pages is missing.", reason="missing", param="pages")
        await self.put_through("pdf-delete-pages", "pdf_delete_pages", (upload,))
