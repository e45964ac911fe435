"""An index for the list of an account's files, newest first. It replaces the one by account and expiry."""

from peewee import Database

from storage.database.migrate import create_index, drop_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index, and deletes the one that it replaces."""
    create_index(database, "file_age", "file (account, created_at, id)")
    drop_index(database, "file_account")
