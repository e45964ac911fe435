"""An index for the stored files of an account."""

from peewee import Database

from storage.database.migrate import create_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    create_index(database, "file_account", "file (account, expires_at)")
