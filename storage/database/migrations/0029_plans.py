"""Plans and roles of accounts. A charge can be of no credits: conversions of unmetered accounts cost nothing."""

from peewee import Database, SqliteDatabase

COLUMNS = ("plan TEXT", "plan_changes TEXT", "role TEXT NOT NULL DEFAULT 'member'")
CHECKS = ("entry", "hold")
# SQLite cannot drop a constraint.
REBUILD = (
    """
    CREATE TABLE entry_new (
        ref TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        kind TEXT NOT NULL,
        amount BIGINT NOT NULL,
        at BIGINT NOT NULL,
        reason TEXT
    )
    """,
    "INSERT INTO entry_new SELECT ref, account, kind, amount, at, reason FROM entry",
    "DROP TABLE entry",
    "ALTER TABLE entry_new RENAME TO entry",
    "CREATE INDEX entry_account ON entry (account, at)",
    """
    CREATE TABLE hold_new (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        amount BIGINT NOT NULL CHECK (amount >= 0),
        state TEXT NOT NULL CHECK (state IN ('held', 'settled', 'released')),
        server TEXT NOT NULL,
        boot TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "INSERT INTO hold_new SELECT id, account, amount, state, server, boot, created_at, expires_at FROM hold",
    "DROP TABLE hold",
    "ALTER TABLE hold_new RENAME TO hold",
    "CREATE INDEX hold_open ON hold (expires_at) WHERE state = 'held'",
)


def up(_migrator: object, database: Database) -> None:
    """Adds the columns and removes the constraints."""
    for column in COLUMNS:
        database.execute_sql(f"ALTER TABLE account ADD COLUMN {column}")
    if isinstance(database, SqliteDatabase):
        for statement in REBUILD:
            database.execute_sql(statement)
    else:
        for table in CHECKS:
            database.execute_sql(f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {table}_amount_check")
