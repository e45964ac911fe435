"""The network address that an account was registered from, by which overruns of its jobs count."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column. It stays empty for existing accounts."""
    database.execute_sql("ALTER TABLE account ADD COLUMN address TEXT")
