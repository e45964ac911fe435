"""Requests that may come again under an idempotency key."""

from __future__ import annotations

from dataclasses import replace

from engine.options import Options
from storage import usage
from storage.blob_store import read_blocks
from web.api.fields import IDEMPOTENCY_KEY, OUTPUT_FORMAT, PAGES, PASSWORD, QUALITY, Values
from web.api.operations import CONVERTS, FileField, FormFields, Operation, result
from web.api.schemas.files import ConversionResult, PdfResult
from web.http.bodies import FormHandler
from web.http.downloads import DownloadHandler
from web.http.handler import Handler
from web.http.responses import wants_json
from web.services.conversion_request import Charged, ConversionOutcome, ConversionRequest, Upload
from web.services.idempotency import Answer, IdempotentRequest, Replayed


class RepeatableHandler(Handler):
    """A resource that answers a request which comes again as it did before."""

    def idempotent_request(self, values: Values) -> IdempotentRequest | None:
        """What the request is known by should it come again."""
        key = values[IDEMPOTENCY_KEY]
        return IdempotentRequest(self.client().id, self.request.path, key) if key else None

    def unwrapped(self, answer: Answer | Replayed) -> Answer:
        """The answer to give. One that was given before is marked."""
        if isinstance(answer, Replayed):
            self.set_header("Idempotency-Replayed", "true")
            return answer.answer
        return answer


class OrderHandler(RepeatableHandler, DownloadHandler):
    """A resource that converts, charges for it, and answers with the file or with a description of it."""

    async def expect_body(self, length: int | None) -> None:
        account = self.client()
        self.services.job_queue.check(account.id, account.tier.max_concurrent)
        await super().expect_body(length)

    async def carry_out(self, order: ConversionRequest, *, described: bool) -> None:
        """Converts and answers."""
        if order.file is None:
            self.services.metrics.conversions.observe_stage("upload", self.request.request_time())
        done = await self.services.conversions.convert(replace(order, context=self.context))
        if isinstance(done, Charged):
            self.account = replace(self.client(), credits_remaining=done.balance)
            if done.answer is None:
                await self._send_made(done.result)
                return
            answer = done.answer
        else:
            answer = self.unwrapped(done)
        if described:
            self.reply(answer.data)
        else:
            await self.send_stored(answer.file_id or "")

    async def _send_made(self, result: ConversionOutcome) -> None:
        blocks = read_blocks(result.path, 0, result.size)
        await self.send_file(blocks, size=result.size, media_type=result.media_type, filename=result.filename)

    def wants_json(self) -> bool:
        """Whether the client asks for a description rather than for the file."""
        return wants_json(self.request.headers.get("Accept", ""))


class Convert(OrderHandler, FormHandler):
    """Converts a file in one request."""

    @Operation(
        id="convert",
        tag="Conversion",
        form=FormFields(FileField("file", "The file to convert."), (OUTPUT_FORMAT, QUALITY, PASSWORD)),
        headers=(IDEMPOTENCY_KEY,),
        answers=result(ConversionResult),
        codes=CONVERTS,
    )
    async def post(self) -> None:
        """Convert a file in one request

        The answer is the file, and nothing is stored. With `Accept: application/json` the result is stored, and the
        answer describes it. Costs one credit.
        """
        await self.unless_gone(self._convert())

    async def _convert(self) -> None:
        upload, values, as_json = self.form().file("file"), self.given(), self.wants_json()
        order = ConversionRequest(
            account=self.client(),
            operation="convert",
            uploads=(upload,),
            target=values[OUTPUT_FORMAT],
            options=Options(quality=values[QUALITY], password=values[PASSWORD]),
            keep=as_json,
            idempotency=self.idempotent_request(values),
        )
        await self.carry_out(order, described=as_json)


_PDF = "application/pdf"
_ANSWERS = result(PdfResult, (_PDF,))


class _PdfTool(OrderHandler, FormHandler):
    async def put_through(
        self,
        tool: str,
        operation: usage.Operation,
        uploads: tuple[Upload, ...],
        options: Options,
        idempotency: IdempotentRequest | None,
        name: str = "",
    ) -> None:
        """Puts the documents through the tool, and answers."""
        as_json = self.wants_json()
        order = ConversionRequest(
            account=self.client(),
            operation=operation,
            uploads=uploads,
            target="pdf",
            options=options,
            tool=tool,
            name=name,
            keep=as_json,
            idempotency=idempotency,
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
        await self.put_through(
            "pdf-merge", "pdf_merge", uploads, options, self.idempotent_request(values), "merged.pdf"
        )


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
        await self.put_through(
            "pdf-delete-pages", "pdf_delete_pages", (upload,), options, self.idempotent_request(values)
        )
