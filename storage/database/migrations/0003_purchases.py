"""Purchases, payments and reversals."""

from peewee import Database

STATEMENTS = (
    """
    CREATE TABLE purchase (
        id TEXT PRIMARY KEY,
        account TEXT NOT NULL REFERENCES account (id),
        pack TEXT NOT NULL,
        credits BIGINT NOT NULL CHECK (credits > 0),
        amount BIGINT NOT NULL CHECK (amount > 0),
        currency TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('opening', 'open', 'processing', 'failed', 'expired', 'paid')),
        session TEXT UNIQUE,
        event TEXT,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        paid_at BIGINT
    )
    """,
    "CREATE INDEX purchase_account ON purchase (account, created_at)",
    "CREATE INDEX purchase_opening ON purchase (created_at) WHERE state = 'opening'",
    """
    CREATE TABLE payment (
        id TEXT PRIMARY KEY,
        purchase TEXT UNIQUE REFERENCES purchase (id),
        reversed BIGINT NOT NULL CHECK (reversed >= 0),
        shortfall BIGINT NOT NULL CHECK (shortfall >= 0 AND shortfall <= reversed)
    )
    """,
    """
    CREATE TABLE reversal (
        id TEXT PRIMARY KEY,
        payment TEXT NOT NULL REFERENCES payment (id),
        kind TEXT NOT NULL CHECK (kind IN ('charge', 'refund', 'dispute')),
        amount BIGINT NOT NULL CHECK (amount >= 0),
        at BIGINT NOT NULL,
        final BOOLEAN NOT NULL
    )
    """,
    "CREATE INDEX reversal_payment ON reversal (payment)",
)


def up(_migrator: object, database: Database) -> None:
    """Creates the tables, in SQL that both databases accept."""
    for statement in STATEMENTS:
        database.execute_sql(statement)
