"""An index for the stored files of an account."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    database.execute_sql("CREATE INDEX file_account ON file (account, expires_at)")
