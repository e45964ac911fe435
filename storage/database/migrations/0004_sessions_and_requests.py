"""Dashboard sessions and the request log."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE session (
        sha256 TEXT PRIMARY KEY,
        api_key TEXT NOT NULL REFERENCES api_key (id),
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX session_expires_at ON session (expires_at)",
    """
    CREATE TABLE request (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        method TEXT NOT NULL,
        path TEXT NOT NULL,
        status BIGINT NOT NULL,
        code TEXT,
        milliseconds BIGINT NOT NULL,
        at_milliseconds BIGINT NOT NULL
    )
    """,
    "CREATE INDEX request_account ON request (account, at_milliseconds, id)",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
