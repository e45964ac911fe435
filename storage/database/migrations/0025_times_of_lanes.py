"""Lanes in the order of the CPU time that they have used, and what the earlier jobs of their accounts allow."""

from peewee import Database

STATEMENTS = (
    "ALTER TABLE lane ADD COLUMN crowd TEXT",
    "ALTER TABLE lane ADD COLUMN proven BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE lane ADD COLUMN restricted_until BIGINT NOT NULL DEFAULT 0",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the columns. Lanes keep their times, which come near to each other when they get new jobs."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
