"""What administrators and operators change, and the identities at a sign-in service that accounts belong to."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE audit (
        id TEXT PRIMARY KEY,
        at BIGINT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        subject TEXT NOT NULL,
        details TEXT NOT NULL
    )
    """,
    "CREATE INDEX audit_at ON audit (at, id)",
    """
    CREATE TABLE identity (
        issuer TEXT NOT NULL,
        subject TEXT NOT NULL,
        account TEXT NOT NULL REFERENCES account (id),
        created_at BIGINT NOT NULL,
        PRIMARY KEY (issuer, subject)
    )
    """,
    "CREATE INDEX identity_account ON identity (account)",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
