"""An index for the messages about a job."""

from peewee import Database

from storage.database.migrate import create_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    create_index(database, "delivery_job", "delivery (job) WHERE job IS NOT NULL")
