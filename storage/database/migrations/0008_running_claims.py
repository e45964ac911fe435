"""An index for the idempotency keys of running requests, which a server deletes when it starts again."""

from peewee import Database

from storage.database.migrate import create_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    create_index(database, "idempotency_running", "idempotency (attempt) WHERE state = 'running'")
