"""POST /convert: a file in, the converted file out."""

from __future__ import annotations

from engine.conversions import Options
from web.fields import IDEMPOTENCY_KEY, OUTPUT_FORMAT, PASSWORD, QUALITY
from web.forms import FormHandler
from web.operations import CONVERTS, FileField, FormFields, Operation, result
from web.orders import OrderHandler
from web.services.orders import Order
from web.shapes.files import ConversionResult


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
        order = Order(
            account=self.client(),
            operation="convert",
            uploads=(upload,),
            target=values[OUTPUT_FORMAT],
            options=Options(quality=values[QUALITY], password=values[PASSWORD]),
            keep=as_json,
            repeatable=self.repeatable(values),
        )
        await self.carry_out(order, described=as_json)
