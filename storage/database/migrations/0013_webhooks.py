"""Webhooks, the secrets that sign their messages, and the outbox: messages that are to be delivered, by receiver."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE webhook (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        url TEXT NOT NULL,
        events TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        failing_since BIGINT,
        disabled_at BIGINT,
        disabled_reason TEXT
    )
    """,
    "CREATE INDEX webhook_account ON webhook (account)",
    """
    CREATE TABLE signing_secret (
        owner TEXT NOT NULL,
        secret TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        PRIMARY KEY (owner, secret)
    )
    """,
    "CREATE INDEX signing_secret_expires_at ON signing_secret (expires_at) WHERE expires_at IS NOT NULL",
    """
    CREATE TABLE delivery (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL,
        webhook TEXT,
        url TEXT NOT NULL,
        host TEXT NOT NULL,
        event TEXT NOT NULL,
        body TEXT NOT NULL,
        attempts BIGINT NOT NULL,
        next_attempt_at BIGINT,
        created_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX delivery_due ON delivery (account, host, next_attempt_at) WHERE next_attempt_at IS NOT NULL",
    "CREATE INDEX delivery_account ON delivery (account, webhook)",
    "CREATE INDEX delivery_created_at ON delivery (created_at)",
    """
    CREATE TABLE delivery_attempt (
        id TEXT PRIMARY KEY,
        delivery TEXT NOT NULL,
        attempt BIGINT NOT NULL,
        webhook TEXT,
        event TEXT NOT NULL,
        status BIGINT,
        error TEXT,
        milliseconds BIGINT NOT NULL,
        created_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX delivery_attempt_delivery ON delivery_attempt (delivery)",
    "CREATE INDEX delivery_attempt_webhook ON delivery_attempt (webhook, created_at, id)",
    """
    CREATE TABLE receiver (
        account TEXT NOT NULL,
        host TEXT NOT NULL,
        due_at BIGINT NOT NULL,
        free_at BIGINT NOT NULL,
        claim TEXT,
        failures BIGINT NOT NULL,
        PRIMARY KEY (account, host)
    )
    """,
    "CREATE INDEX receiver_due_at ON receiver (due_at)",
    "ALTER TABLE account ADD COLUMN low_credits BIGINT",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables and the column, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
