"""Lanes in the order of the CPU time that they have used, and what the earlier jobs of their accounts allow."""

from peewee import Database

STATEMENTS = (
    "ALTER TABLE lane ADD COLUMN crowd TEXT",
    "ALTER TABLE lane ADD COLUMN proven BIGINT NOT NULL DEFAULT 0",
    "ALTER TABLE lane ADD COLUMN restricted_until BIGINT NOT NULL DEFAULT 0",
    "UPDATE lane SET served = 0",
    "CREATE INDEX lane_crowd ON lane (crowd) WHERE crowd IS NOT NULL",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the columns. All accounts begin at the same time."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
