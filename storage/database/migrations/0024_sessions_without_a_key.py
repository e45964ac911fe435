"""Dashboard sessions that begin with an API key or with a link sent by email, and details of logged requests."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE dashboard_session (
        sha256 TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        api_key TEXT REFERENCES api_key (id),
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX dashboard_session_expires_at ON dashboard_session (expires_at)",
    "ALTER TABLE request ADD COLUMN details TEXT",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the table and the column."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
