"""Jobs of test keys."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column."""
    database.execute_sql("ALTER TABLE job ADD COLUMN test BOOLEAN NOT NULL DEFAULT FALSE")
