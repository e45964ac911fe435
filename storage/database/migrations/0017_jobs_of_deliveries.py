"""The job that a message is about, whose data are erased with it."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column. It is null in earlier messages."""
    database.execute_sql("ALTER TABLE delivery ADD COLUMN job TEXT")
