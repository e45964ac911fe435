"""/pdf: documents put through a tool."""

from __future__ import annotations

from engine.conversions import Options
from storage import usage
from web.fields import IDEMPOTENCY_KEY, PAGES, PASSWORD
from web.forms import FormHandler
from web.operations import CONVERTS, FileField, FormFields, Operation, result
from web.orders import OrderHandler
from web.services.orders import Order, Upload
from web.services.repeats import Repeatable
from web.shapes.files import PdfResult

_PDF = "application/pdf"
_ANSWERS = result(PdfResult, (_PDF,))


class _PdfTool(OrderHandler, FormHandler):
    async def put_through(
        self,
        tool: str,
        operation: usage.Operation,
        uploads: tuple[Upload, ...],
        options: Options,
        repeatable: Repeatable | None,
        name: str = "",
    ) -> None:
        """Puts the documents through the tool, and answers."""
        as_json = self.wants_json()
        order = Order(
            account=self.client(),
            operation=operation,
            uploads=uploads,
            target="pdf",
            options=options,
            tool=tool,
            name=name,
            keep=as_json,
            repeatable=repeatable,
        )
        await self.carry_out(order, described=as_json)


class Merge(_PdfTool):
    """Several documents as one, in the order in which they are sent."""

    @Operation(
        id="mergePdfs",
        tag="PDF",
        form=FormFields(
            FileField("files[]", "The documents, in their order.", 2, 20, aliases=("files",), media_type=_PDF),
            (PASSWORD,),
        ),
        headers=(IDEMPOTENCY_KEY,),
        answers=_ANSWERS,
        codes=CONVERTS,
    )
    async def post(self) -> None:
        """Merge PDFs

        Outlines, links, form fields and page labels survive. With `Accept: application/json` the result is stored, and
        the answer describes it. Costs one credit.
        """
        await self.unless_gone(self._merge())

    async def _merge(self) -> None:
        uploads, values = self.form().uploads, self.given()
        options = Options(password=values[PASSWORD])
        await self.put_through("pdf-merge", "pdf_merge", uploads, options, self.repeatable(values), "merged.pdf")


class DeletePages(_PdfTool):
    """A document without some of its pages."""

    @Operation(
        id="deletePdfPages",
        tag="PDF",
        form=FormFields(FileField("file", "The document.", media_type=_PDF), (PAGES, PASSWORD)),
        headers=(IDEMPOTENCY_KEY,),
        answers=_ANSWERS,
        codes=CONVERTS,
    )
    async def post(self) -> None:
        """Delete pages of a PDF

        Outlines, links, form fields and page labels survive. With `Accept: application/json` the result is stored, and
        the answer describes it. Costs one credit.
        """
        await self.unless_gone(self._delete())

    async def _delete(self) -> None:
        upload, values = self.form().file("file"), self.given()
        options = Options(pages=values[PAGES], password=values[PASSWORD])
        await self.put_through("pdf-delete-pages", "pdf_delete_pages", (upload,), options, self.repeatable(values))
