"""Accounts, API keys, ledger, usage and idempotency keys."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE account (
        id TEXT PRIMARY KEY,
        email TEXT NOT NULL,
        email_key TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        verified_at BIGINT,
        balance BIGINT NOT NULL CHECK (balance >= 0),
        held BIGINT NOT NULL CHECK (held >= 0),
        purchased BIGINT NOT NULL CHECK (purchased >= 0),
        used BIGINT NOT NULL CHECK (used >= 0),
        created_at BIGINT NOT NULL,
        last_used_at BIGINT
    )
    """,
    """
    CREATE TABLE api_key (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        sha256 TEXT NOT NULL UNIQUE,
        prefix TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        last_used_at BIGINT,
        expires_at BIGINT,
        revoked_at BIGINT
    )
    """,
    "CREATE INDEX api_key_account ON api_key (account)",
    """
    CREATE TABLE verification (
        sha256 TEXT PRIMARY KEY,
        purpose TEXT NOT NULL,
        account TEXT REFERENCES account (id),
        email TEXT NOT NULL,
        name TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL,
        used_at BIGINT
    )
    """,
    "CREATE INDEX verification_expires_at ON verification (expires_at)",
    """
    CREATE TABLE entry (
        ref TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        kind TEXT NOT NULL,
        amount BIGINT NOT NULL CHECK (amount <> 0),
        at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX entry_account ON entry (account, at)",
    """
    CREATE TABLE hold (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        amount BIGINT NOT NULL CHECK (amount > 0),
        state TEXT NOT NULL CHECK (state IN ('held', 'settled', 'released')),
        server TEXT NOT NULL,
        boot TEXT NOT NULL,
        created_at BIGINT NOT NULL,
        expires_at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX hold_open ON hold (expires_at) WHERE state = 'held'",
    """
    CREATE TABLE usage (
        account TEXT NOT NULL REFERENCES account (id),
        operation TEXT NOT NULL,
        input_format TEXT NOT NULL,
        output_format TEXT NOT NULL,
        bytes_in BIGINT NOT NULL CHECK (bytes_in >= 0),
        bytes_out BIGINT NOT NULL CHECK (bytes_out >= 0),
        success BOOLEAN NOT NULL,
        credits BIGINT NOT NULL CHECK (credits >= 0),
        at BIGINT NOT NULL
    )
    """,
    "CREATE INDEX usage_account ON usage (account, at)",
    """
    CREATE TABLE idempotency (
        account TEXT NOT NULL REFERENCES account (id),
        path TEXT NOT NULL,
        key TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('running', 'done')),
        attempt TEXT NOT NULL,
        lease_until BIGINT NOT NULL,
        status BIGINT,
        headers TEXT,
        body TEXT,
        file_id TEXT,
        created_at BIGINT NOT NULL,
        PRIMARY KEY (account, path, key)
    )
    """,
    "CREATE INDEX idempotency_created_at ON idempotency (created_at)",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
