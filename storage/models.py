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
