"""The tables. They belong to no database: every query is given the one it runs on by its transaction.

Times are Unix time in whole seconds, amounts are credits. Constraints and indexes stand in the migrations.
"""

from __future__ import annotations

from peewee import BigIntegerField, BooleanField, CompositeKey, Model, TextField


class Account(Model):
    """Who pays. What is held is no longer in the balance."""

    id = TextField(primary_key=True)
    email = TextField()
    email_key = TextField(unique=True)  # the address without regard to case
    name = TextField()
    verified_at = BigIntegerField(null=True)
    balance = BigIntegerField(default=0)
    held = BigIntegerField(default=0)
    purchased = BigIntegerField(default=0)
    used = BigIntegerField(default=0)
    created_at = BigIntegerField()
    last_used_at = BigIntegerField(null=True)


class Key(Model):
    """An API key of which only the SHA-256 is known. After a rotation it lives on until `expires_at`."""

    id = TextField(primary_key=True)
    account = TextField()
    sha256 = TextField(unique=True)
    prefix = TextField()
    name = TextField()
    created_at = BigIntegerField()
    last_used_at = BigIntegerField(null=True)
    expires_at = BigIntegerField(null=True)
    revoked_at = BigIntegerField(null=True)

    class Meta:
        table_name = "api_key"


class Verification(Model):
    """A mailed token, by its SHA-256: for an account, or for one that is yet to be."""

    sha256 = TextField(primary_key=True)
    purpose = TextField()
    account = TextField(null=True)
    email = TextField()
    name = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()
    used_at = BigIntegerField(null=True)


class Entry(Model):
    """The journal: what came in or went out, once per `ref`. Rows are only ever added."""

    ref = TextField(primary_key=True)
    account = TextField()
    kind = TextField()
    amount = BigIntegerField()  # negative where credits leave
    at = BigIntegerField()


class Hold(Model):
    """Credits set aside for an operation that runs."""

    id = TextField(primary_key=True)
    account = TextField()
    amount = BigIntegerField()
    state = TextField()  # held, settled or released
    server = TextField()
    boot = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()


class Usage(Model):
    """An operation that ran to its end, well or badly."""

    account = TextField()
    operation = TextField()
    input_format = TextField()
    output_format = TextField()
    bytes_in = BigIntegerField()
    bytes_out = BigIntegerField()
    success = BooleanField()
    credits = BigIntegerField()
    at = BigIntegerField()

    class Meta:
        primary_key = False


class Idempotency(Model):
    """A request that may be repeated: an attempt that runs, or its answer."""

    account = TextField()
    path = TextField()
    key = TextField()
    fingerprint = TextField()
    state = TextField()  # running or done
    attempt = TextField()
    lease_until = BigIntegerField()
    status = BigIntegerField(null=True)
    headers = TextField(null=True)  # a JSON object
    body = TextField(null=True)
    file_id = TextField(null=True)
    created_at = BigIntegerField()

    class Meta:
        primary_key = CompositeKey("account", "path", "key")


class Batch(Model):
    """Files that are converted together."""

    id = TextField(primary_key=True)
    account = TextField()
    output_format = TextField()
    added = BigIntegerField(default=0)  # how many files have ever been added
    ran_at = BigIntegerField(null=True)
    created_at = BigIntegerField()
    updated_at = BigIntegerField()
    expires_at = BigIntegerField()


class Run(Model):
    """A conversion of a batch that runs, or that ended with its server."""

    id = TextField(primary_key=True)
    batch = TextField()
    server = TextField()
    boot = TextField()
    lease_until = BigIntegerField()

    class Meta:
        table_name = "batch_run"


class File(Model):
    """A file that was sent, and what was made of it. Several may have been made of one upload."""

    id = TextField(primary_key=True)
    account = TextField()
    original_name = TextField()
    extension = TextField()
    input_format = TextField()
    original_size = BigIntegerField()
    source = TextField(null=True)  # the blob of the upload
    source_file = TextField(null=True)
    batch = TextField(null=True)
    place = BigIntegerField(null=True)  # in the order of the batch
    result = TextField(null=True)  # the blob of the result
    outcome = TextField(null=True)  # a JSON object
    fault = TextField(null=True)  # a JSON object
    created_at = BigIntegerField()
    processed_at = BigIntegerField(null=True)
    expires_at = BigIntegerField()


class Purchase(Model):
    """A pack that is being bought, as the checkout was opened for it. `amount` is in minor units of its currency."""

    id = TextField(primary_key=True)
    account = TextField()
    pack = TextField()
    credits = BigIntegerField()
    amount = BigIntegerField()
    currency = TextField()
    state = TextField()
    session = TextField(unique=True, null=True)  # the provider's name for it
    event = TextField(null=True)  # what told that it is paid
    created_at = BigIntegerField()
    expires_at = BigIntegerField(null=True)
    paid_at = BigIntegerField(null=True)


class Payment(Model):
    """Money that moved, by the provider's name for it. What it paid for may become known after it went back."""

    id = TextField(primary_key=True)
    purchase = TextField(unique=True, null=True)
    reversed = BigIntegerField(default=0)  # credits that were to go because money went back
    shortfall = BigIntegerField(default=0)  # how many of these had been spent before


class Reversal(Model):
    """A refund, a dispute, or the sum of a charge's refunds, as it stood at last. Amounts are minor units."""

    id = TextField(primary_key=True)
    payment = TextField()
    kind = TextField()  # refund, dispute or charge
    amount = BigIntegerField()  # 0 where the money stayed or came back
    at = BigIntegerField()
    final = BooleanField()


class Session(Model):
    """Somebody at the dashboard, by the SHA-256 of a token; it is over when its key is."""

    sha256 = TextField(primary_key=True)
    api_key = TextField()
    created_at = BigIntegerField()
    expires_at = BigIntegerField()


class Request(Model):
    """A request of late. Many come in a second."""

    id = TextField(primary_key=True)
    account = TextField()
    method = TextField()
    path = TextField()
    status = BigIntegerField()
    code = TextField(null=True)
    milliseconds = BigIntegerField()
    at_milliseconds = BigIntegerField()
