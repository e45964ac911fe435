"""Jobs, and for each account a lane with the number of its jobs, by which the queue is fair."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE lane (
        account TEXT PRIMARY KEY REFERENCES account (id),
        waiting BIGINT NOT NULL CHECK (waiting >= 0),
        running BIGINT NOT NULL CHECK (running >= 0),
        max_running BIGINT NOT NULL,
        served BIGINT NOT NULL,
        bytes BIGINT NOT NULL CHECK (bytes >= 0)
    )
    """,
    "CREATE INDEX lane_waiting ON lane (served, account) WHERE waiting > 0",
    """
    CREATE TABLE job (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        number BIGINT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('queued', 'processing', 'completed', 'failed', 'cancelled')),
        operation TEXT NOT NULL,
        input_format TEXT,
        output_format TEXT NOT NULL,
        tag TEXT,
        webhook_url TEXT,
        request TEXT,
        inputs BIGINT NOT NULL,
        size BIGINT NOT NULL,
        holds BIGINT NOT NULL,
        done BIGINT NOT NULL,
        total BIGINT,
        fence BIGINT NOT NULL,
        attempts BIGINT NOT NULL,
        crashes BIGINT NOT NULL,
        server TEXT,
        boot TEXT,
        lease_until BIGINT,
        result TEXT,
        file TEXT,
        error TEXT,
        created_at BIGINT NOT NULL,
        started_at BIGINT,
        finished_at BIGINT,
        expires_at BIGINT,
        CHECK ((state = 'processing') = (lease_until IS NOT NULL)),
        CHECK ((finished_at IS NULL) = (state IN ('queued', 'processing'))),
        CHECK ((request IS NULL) = (finished_at IS NOT NULL))
    )
    """,
    "CREATE INDEX job_number ON job (account, number)",
    "CREATE INDEX job_queued ON job (account, number) WHERE state = 'queued'",
    "CREATE INDEX job_queued_at ON job (created_at) WHERE state = 'queued'",
    "CREATE INDEX job_lease ON job (lease_until) WHERE state = 'processing'",
    "CREATE INDEX job_expires_at ON job (expires_at) WHERE expires_at IS NOT NULL",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
