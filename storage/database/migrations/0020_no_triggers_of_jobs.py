"""Servers send messages about jobs themselves: transactions that send messages commit one after the other."""

from peewee import Database, SqliteDatabase


def up(_migrator: object, database: Database) -> None:
    """Deletes the trigger of PostgreSQL that sent a message for each change of a job."""
    if not isinstance(database, SqliteDatabase):
        database.execute_sql("DROP TRIGGER tell_job ON job")
        database.execute_sql("DROP FUNCTION tell_job()")
