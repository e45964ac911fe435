"""Usage per day: sums of the usage of each account and day (UTC, days since 1970-01-01).

A trigger keeps them, so that they stay right while servers of the previous release still run.
"""

from peewee import Database, SqliteDatabase

CREATE_TABLE = """
    CREATE TABLE usage_day (
        account TEXT NOT NULL REFERENCES account (id),
        day BIGINT NOT NULL,
        operation TEXT NOT NULL,
        input_format TEXT NOT NULL,
        output_format TEXT NOT NULL,
        success BOOLEAN NOT NULL,
        conversions BIGINT NOT NULL,
        credits BIGINT NOT NULL,
        bytes_in BIGINT NOT NULL,
        bytes_out BIGINT NOT NULL,
        PRIMARY KEY (account, day, operation, input_format, output_format, success)
    )
"""
ADD = """
    INSERT INTO usage_day
    VALUES (NEW.account, NEW.at / 86400, NEW.operation, NEW.input_format, NEW.output_format, NEW.success,
        1, NEW.credits, NEW.bytes_in, NEW.bytes_out)
    ON CONFLICT (account, day, operation, input_format, output_format, success) DO UPDATE SET
        conversions = usage_day.conversions + 1,
        credits = usage_day.credits + excluded.credits,
        bytes_in = usage_day.bytes_in + excluded.bytes_in,
        bytes_out = usage_day.bytes_out + excluded.bytes_out;
"""
SQLITE_TRIGGER = (f"CREATE TRIGGER usage_per_day AFTER INSERT ON usage BEGIN {ADD} END",)
POSTGRESQL_TRIGGER = (
    f"CREATE FUNCTION add_usage_per_day() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {ADD} RETURN NULL; END $$",
    "CREATE TRIGGER usage_per_day AFTER INSERT ON usage FOR EACH ROW EXECUTE FUNCTION add_usage_per_day()",
)
BACKFILL = "INSERT INTO backfill VALUES ('usage_day', '')"


def up(_migrator: object, database: Database) -> None:
    """Creates the table and the trigger. Earlier usage is added by a backfill."""
    trigger = SQLITE_TRIGGER if isinstance(database, SqliteDatabase) else POSTGRESQL_TRIGGER
    for statement in (CREATE_TABLE, *trigger, BACKFILL):
        database.execute_sql(statement)
