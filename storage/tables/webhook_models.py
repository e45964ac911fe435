"""Peewee models of the tables of webhooks, like those in `models`."""

from peewee import BigIntegerField, CompositeKey, Model, TextField


class Webhook(Model):
    """A receiver of events. It gets no more of them once it is disabled."""

    webhook_id = TextField(column_name="id", primary_key=True)
    account = TextField()
    url = TextField()
    events = TextField()  # separated by spaces
    created_at = BigIntegerField()
    failing_since = BigIntegerField(null=True)  # the first failed attempt since the latest success
    disabled_at = BigIntegerField(null=True)
    disabled_reason = TextField(null=True)


class SigningSecret(Model):
    """A secret of the `owner`: it signs messages of a webhook, or messages that requests of an account ask for."""

    owner = TextField()
    secret = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField(null=True)  # set when the secret is replaced

    class Meta:
        table_name = "signing_secret"
        primary_key = CompositeKey("owner", "secret")


class Delivery(Model):
    """A message to one URL. `webhook` is null if a request has named the URL, and `job` if it is about none."""

    delivery_id = TextField(column_name="id", primary_key=True)
    account = TextField()
    webhook = TextField(null=True)
    url = TextField()
    host = TextField()  # host name and port
    event = TextField()
    body = TextField()  # JSON
    job = TextField(null=True)
    attempts = BigIntegerField()
    next_attempt_at = BigIntegerField(null=True)  # null if it is delivered, or given up
    created_at = BigIntegerField()


class DeliveryAttempt(Model):
    """An attempt to deliver a message. `status` is the one of the response, `error` why there is none."""

    attempt_id = TextField(column_name="id", primary_key=True)  # made from the ids of the delivery and its number
    delivery_id = TextField(column_name="delivery")
    attempt = BigIntegerField()  # The first attempt is 1.
    webhook = TextField(null=True)
    event = TextField()
    status = BigIntegerField(null=True)
    error = TextField(null=True)
    milliseconds = BigIntegerField()
    created_at = BigIntegerField()

    class Meta:
        table_name = "delivery_attempt"


class Receiver(Model):
    """A host that an account has deliveries for. One server at a time sends to it."""

    account = TextField()
    host = TextField()
    due_at = BigIntegerField()  # when its first delivery is due
    free_at = BigIntegerField()  # when it may be claimed: the end of a pause after failures
    claim = TextField(null=True)  # set while a server sends to it
    failures = BigIntegerField()  # consecutive ones

    class Meta:
        primary_key = CompositeKey("account", "host")
