"""Why an operator granted or removed credits."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column."""
    database.execute_sql("ALTER TABLE entry ADD COLUMN reason TEXT")
