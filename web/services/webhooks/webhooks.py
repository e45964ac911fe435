"""Webhooks: URLs that get messages about an account's events."""

from collections.abc import Collection

from storage.database import Database
from storage.database.pages import Page
from storage.tables import deliveries, webhooks
from storage.tables.deliveries import Attempt
from storage.tables.ledger import ServerInstance
from storage.tables.webhooks import Event, IssuedWebhook, StoredWebhook
from web.metrics.service import WebhookMetrics
from web.services.accounts.email import EmailQueue
from web.services.conversions.remote_files import url_error
from web.services.webhooks.deliveries import Deliveries
from web.services.webhooks.outgoing import Outgoing, OutgoingError


class Webhooks:
    """Creates, lists and deletes webhooks, and their secrets. Tests them, and sends messages again.

    `sender` sends the messages. `owner` is this run of this server. Emails have a link to the dashboard, which is
    beside the API at `base_url`.
    """

    def __init__(
        self,
        database: Database,
        owner: ServerInstance,
        outgoing: Outgoing,
        email_queue: EmailQueue,
        metrics: WebhookMetrics,
        base_url: str,
    ) -> None:
        self._database = database
        self._outgoing = outgoing
        self.sender = Deliveries(database, owner, outgoing, email_queue, metrics, base_url)

    async def create(self, account: str, url: str, events: Collection[Event]) -> IssuedWebhook:
        """Creates a webhook for these events. Raises InvalidParameter and TooManyWebhooks.

        The name in the URL is resolved by each delivery.
        """
        try:
            self._outgoing.check_url(url)
        except OutgoingError as error:
            raise url_error(error, "url") from None
        return await self._database.run(webhooks.add, account, url, events)

    async def list_all(self, account: str) -> tuple[StoredWebhook, ...]:
        """Returns the webhooks of the account, newest first."""
        return await self._database.run(webhooks.list_all, account)

    async def list_page(self, account: str, *, limit: int, cursor: str | None) -> Page[StoredWebhook]:
        """Returns webhooks of the account, newest first."""
        return await self._database.run(webhooks.list_page, account, limit=limit, cursor=cursor)

    async def get(self, account: str, webhook_id: str) -> StoredWebhook:
        """Returns a webhook. Raises NotFound."""
        return await self._database.run(webhooks.get, account, webhook_id)

    async def delete(self, account: str, webhook_id: str) -> None:
        """Deletes a webhook, its secrets and its deliveries. Raises NotFound."""
        await self._database.run(webhooks.delete, account, webhook_id)

    async def rotate(self, account: str, webhook_id: str) -> IssuedWebhook:
        """Replaces the secret of a webhook. The old one signs, too, for a day. Raises NotFound and TooManyRotations."""
        return await self._database.run(webhooks.rotate, account, webhook_id)

    async def replace_own_secret(self, account: str) -> str:
        """Makes or replaces the secret for URLs that requests name, as `rotate` does. Raises TooManyRotations."""
        return await self._database.run(webhooks.replace_secret, account)

    async def owns_secret(self, account: str, secret: str) -> bool:
        """Returns whether the account or one of its webhooks has the secret."""
        owners = (account, *(webhook.webhook_id for webhook in await self.list_all(account)))
        found = await self._database.run(webhooks.signing_secrets, owners)
        return any(secret in secrets for secrets in found.values())

    async def test(self, account: str, webhook_id: str) -> str:
        """Sends a message of the type `test`. Returns the id of the delivery. Raises NotFound and WebhookDisabled."""
        delivery_id = await self._database.run(deliveries.add_test, account, webhook_id)
        self.sender.wake()
        return delivery_id

    async def list_attempts(self, account: str, webhook_id: str, *, limit: int, cursor: str | None) -> Page[Attempt]:
        """Returns attempts to deliver messages to a webhook, newest first. Raises NotFound."""
        await self.get(account, webhook_id)
        return await self._database.run(deliveries.list_attempts, webhook_id, limit=limit, cursor=cursor)

    async def redeliver(self, account: str, delivery_id: str) -> None:
        """Sends a message again, under the same id. Raises NotFound and WebhookDisabled."""
        await self._database.run(deliveries.redeliver, account, delivery_id)
        self.sender.wake()
