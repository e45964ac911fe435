"""The tables of the dashboard, as in `models`: who is signed in, and the latest requests."""

from __future__ import annotations

from peewee import BigIntegerField, Model, TextField


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
