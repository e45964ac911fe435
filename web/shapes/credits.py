"""Credits that are bought."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from web.shapes.values import Timestamp


class Purchase(TypedDict):
    """A checkout that waits to be paid."""

    checkout_url: Annotated[
        str,
        Field(
            description="The page to open in a browser.", examples=["https://checkout.stripe.com/c/pay/cs_live_a1b2c3"]
        ),
    ]
    session_id: Annotated[str, Field(description="The provider's name for it.", examples=["cs_live_a1b2c3"])]
    purchase_id: Annotated[
        str, Field(pattern="^pur_[0-9A-Za-z]{22}$", description="Ours.", examples=["pur_0Ab1Cd2Ef3Gh4Ij5Kl6Mn7"])
    ]
    pack: Annotated[str, Field(examples=["starter"])]
    credits: Annotated[int, Field(ge=1, examples=[500])]
    amount: Annotated[int, Field(ge=1, description="The price in cents.", examples=[500])]
    currency: Literal["eur"]
    language: Annotated[str, Field(description="The one that the page has.", examples=["en"])]
    status: Literal["open"]
    expires_at: Timestamp


class Received(TypedDict):
    """The event has been heard."""

    received: Literal[True]
