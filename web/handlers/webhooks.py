"""/webhooks: URLs that get messages about an account's events, their secrets, and what was delivered."""

from web.api.fields import PageQuery, WebhookFields
from web.api.headers import NO_STORE
from web.api.operations import Operation, json_response
from web.api.schemas import webhooks as schemas
from web.http.handler import BaseHandler


class Webhooks(BaseHandler):
    """The account's webhooks."""

    fixed_headers = NO_STORE

    @Operation(id="webhooksList", tag="Webhooks", query=PageQuery, responses=(json_response(schemas.WebhookList),))
    async def get(self) -> None:
        """List the webhooks"""
        query = self.input.query_fields(PageQuery)
        page = await self.services.webhooks.list_page(self.client().id, limit=query.limit, cursor=query.cursor)
        self.respond(schemas.WebhookList(page.values, page.next_cursor))

    @Operation(
        id="webhooksCreate", tag="Webhooks", json=WebhookFields, responses=(json_response(schemas.IssuedWebhook),)
    )
    async def post(self) -> None:
        """Create a webhook

        Its URL gets signed messages about events. The response shows the secret that signs them.
        """
        fields = self.input.json_fields(WebhookFields)
        issued = await self.services.webhooks.create(self.client().id, fields.url, fields.events)
        self.respond(schemas.IssuedWebhook(issued.webhook, issued.secret))


class WebhookResource(BaseHandler):
    """A webhook."""

    fixed_headers = NO_STORE

    @Operation(id="webhooksDelete", tag="Webhooks", responses=(json_response(schemas.DeletedWebhook),))
    async def delete(self, webhook_id: str) -> None:
        """Delete a webhook and its deliveries"""
        await self.services.webhooks.delete(self.client().id, webhook_id)
        self.respond(schemas.DeletedWebhook(webhook_id))


class WebhookRotation(BaseHandler):
    """Replaces the secret of a webhook."""

    fixed_headers = NO_STORE

    @Operation(id="webhooksRotate", tag="Webhooks", responses=(json_response(schemas.IssuedWebhook),))
    async def post(self, webhook_id: str) -> None:
        """Replace the secret of a webhook

        For 24 hours, messages are signed with the old secret, too. It can be replaced ten times in that time.
        """
        issued = await self.services.webhooks.rotate(self.client().id, webhook_id)
        self.respond(schemas.IssuedWebhook(issued.webhook, issued.secret))


class WebhookTest(BaseHandler):
    """Tries a webhook out."""

    @Operation(id="webhooksTest", tag="Webhooks", responses=(json_response(schemas.QueuedDelivery),))
    async def post(self, webhook_id: str) -> None:
        """Send a message of the type `test`"""
        self.respond(schemas.QueuedDelivery(await self.services.webhooks.test(self.client().id, webhook_id)))


class WebhookDeliveries(BaseHandler):
    """The attempts to deliver messages to a webhook."""

    fixed_headers = NO_STORE

    @Operation(id="deliveriesList", tag="Webhooks", query=PageQuery, responses=(json_response(schemas.AttemptList),))
    async def get(self, webhook_id: str) -> None:
        """List the attempts to deliver messages to a webhook"""
        query = self.input.query_fields(PageQuery)
        account = self.client().id
        page = await self.services.webhooks.list_attempts(account, webhook_id, limit=query.limit, cursor=query.cursor)
        self.respond(schemas.AttemptList(page.values, page.next_cursor))


class Redelivery(BaseHandler):
    """Sends a message again."""

    @Operation(id="deliveriesRedeliver", tag="Webhooks", responses=(json_response(schemas.QueuedDelivery),))
    async def post(self, delivery_id: str) -> None:
        """Redeliver an event

        It has the same `webhook-id`, also if it was delivered before.
        """
        await self.services.webhooks.redeliver(self.client().id, delivery_id)
        self.respond(schemas.QueuedDelivery(delivery_id))


class OwnSecret(BaseHandler):
    """The account's own secret."""

    fixed_headers = NO_STORE

    @Operation(id="webhookSecretReplace", tag="Webhooks", responses=(json_response(schemas.OwnSecret),))
    async def post(self) -> None:
        """Make or replace the secret for `webhook_url`

        It signs the messages to URLs that requests name. Without one, they are not signed. For 24 hours, messages are
        signed with the old secret, too. It can be replaced ten times in that time.
        """
        self.respond(schemas.OwnSecret(await self.services.webhooks.replace_own_secret(self.client().id)))
