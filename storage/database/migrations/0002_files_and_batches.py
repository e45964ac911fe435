"""Files and batches."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE batch (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        output_format TEXT NOT NULL,
        added BIGINT NOT NULL,
        ran_at BIGINT,
        created_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX batch_expires_at ON batch (expires_at)",
    """
    CREATE TABLE batch_run (
        id TEXT PRIMARY KEY,
        batch TEXT NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
        server TEXT NOT NULL,
        boot TEXT NOT NULL,
        lease_until BIGINT NOT NULL
    )
    """,
    "CREATE INDEX batch_run_batch ON batch_run (batch)",
    """
    CREATE TABLE file (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        original_name TEXT NOT NULL,
        extension TEXT NOT NULL,
        input_format TEXT NOT NULL,
        original_size BIGINT NOT NULL CHECK (original_size >= 0),
        source TEXT,
        source_file TEXT,
        batch TEXT REFERENCES batch (id),
        place BIGINT,
        result TEXT,
        outcome TEXT,
        fault TEXT,
        created_at BIGINT NOT NULL,
        processed_at BIGINT,
        expires_at BIGINT NOT NULL,
        CHECK ((result IS NULL) = (processed_at IS NULL)),
        CHECK ((outcome IS NULL) = (processed_at IS NULL)),
        CHECK ((batch IS NULL) = (place IS NULL))
    )
    """,
    "CREATE INDEX file_expires_at ON file (expires_at)",
    "CREATE INDEX file_batch ON file (batch, place)",
    "CREATE INDEX file_source ON file (source)",
    "CREATE INDEX file_result ON file (result)",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
