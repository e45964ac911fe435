"""Presets: fields of requests that an account keeps under a name."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Creates the table."""
    database.execute_sql(
        """
        CREATE TABLE preset (
            account TEXT NOT NULL REFERENCES account (id),
            name TEXT NOT NULL,
            fields TEXT NOT NULL,
            created_at BIGINT NOT NULL,
            updated_at BIGINT NOT NULL,
            PRIMARY KEY (account, name)
        )
        """
    )
