"""An index for the receivers that servers send to."""

from peewee import Database

from storage.database.migrate import create_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    create_index(database, "receiver_claim", "receiver (claim) WHERE claim IS NOT NULL")
