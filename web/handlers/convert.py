"""POST /convert: a file in, the converted file out."""

from __future__ import annotations

from web.fields import form_options, output_format
from web.forms import FormHandler
from web.orders import OrderHandler
from web.services.orders import Order


class Convert(OrderHandler, FormHandler):
    """Converts a file in one request."""

    text_fields = ("output_format", "quality", "password")

    async def post(self) -> None:
        await self.unless_gone(self._convert())

    async def _convert(self) -> None:
        form, described = self.form(), self.wants_json()
        order = Order(
            account=self.client(),
            operation="convert",
            uploads=(form.file("file"),),
            target=output_format(form.fields),
            options=form_options(form.fields),
            keep=described,
            repeatable=self.repeatable(),
        )
        await self.carry_out(order, described=described)
