"""The languages that owners of accounts have chosen."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column."""
    database.execute_sql("ALTER TABLE account ADD COLUMN language TEXT")
