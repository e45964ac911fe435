"""Servers, and when each was last alive, in place of the leases of what they own."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Creates the table. What servers of the previous release own keeps its leases."""
    database.execute_sql("CREATE TABLE server (name TEXT PRIMARY KEY, boot TEXT NOT NULL, alive_at BIGINT NOT NULL)")
