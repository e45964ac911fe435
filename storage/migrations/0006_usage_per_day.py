"""Usage per day: sums of the usage of each account and day (UTC, days since 1970-01-01)."""

from __future__ import annotations

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE usage_day (
        account TEXT NOT NULL REFERENCES account (id),
        day BIGINT NOT NULL,
        operation TEXT NOT NULL,
        input_format TEXT NOT NULL,
        output_format TEXT NOT NULL,
        success BOOLEAN NOT NULL,
        conversions BIGINT NOT NULL,
        credits BIGINT NOT NULL,
        bytes_in BIGINT NOT NULL,
        bytes_out BIGINT NOT NULL,
        PRIMARY KEY (account, day, operation, input_format, output_format, success)
    )
    """,
    """
    INSERT INTO usage_day
    SELECT account, at / 86400, operation, input_format, output_format, success,
        COUNT(*), SUM(credits), SUM(bytes_in), SUM(bytes_out)
    FROM usage GROUP BY 1, 2, 3, 4, 5, 6
    """,
)


def up(_migrator: object, database: Database) -> None:
    """Creates the table and fills it from `usage`, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
