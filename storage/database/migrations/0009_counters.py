"""Counters of accounts, credits and files, for the metrics.

Triggers add the changes of rows to `counter_change`, which no transaction waits for. `counter` has the sums of the
changes that were moved there. The view `counted` has the values by the rows themselves.
"""

from collections.abc import Iterator

from peewee import Database, SqliteDatabase

PARTS = {
    "account": {
        "free_accounts": "CASE WHEN {row}.email <> '' AND {row}.purchased = 0 THEN 1 ELSE 0 END",
        "paid_accounts": "CASE WHEN {row}.email <> '' AND {row}.purchased <> 0 THEN 1 ELSE 0 END",
        "credits": "CASE WHEN {row}.email <> '' THEN {row}.balance + {row}.held ELSE 0 END",
    },
    "file": {
        "pending_files": "CASE WHEN {row}.processed_at IS NULL THEN 1 ELSE 0 END",
        "processed_files": "CASE WHEN {row}.processed_at IS NULL THEN 0 ELSE 1 END",
        "bytes": "COALESCE({row}.result_size, 0) + CASE WHEN {row}.source IS NOT NULL AND {row}.source_file IS NULL"
        " THEN {row}.original_size ELSE 0 END",
    },
}
"""What each row adds to each counter. Files with a `source_file` share its upload."""

CREATE_TABLES = (
    "CREATE TABLE counter (name TEXT PRIMARY KEY, amount BIGINT NOT NULL)",
    "CREATE TABLE counter_change (name TEXT NOT NULL, amount BIGINT NOT NULL)",
)


def change(part: str, event: str) -> str:
    """The difference that an event makes to a counter."""
    new, old = (f"({part.format(row=row)})" for row in ("NEW", "OLD"))
    return {"INSERT": new, "UPDATE": f"({new} - {old})", "DELETE": f"-{old}"}[event]


def triggers(table: str, *, sqlite: bool) -> Iterator[str]:
    """Creates the triggers of a table."""
    for event in ("INSERT", "UPDATE", "DELETE"):
        changes = {name: change(part, event) for name, part in PARTS[table].items()}
        rows = ", ".join(f"('{name}', {amount})" for name, amount in changes.items())
        add = f"INSERT INTO counter_change SELECT column1, column2 FROM (VALUES {rows}) AS changes WHERE column2 <> 0;"
        condition = " OR ".join(f"{amount} <> 0" for amount in changes.values())
        name = f"count_{table}_{event.lower()}"
        if not sqlite:
            body = f"BEGIN {add} RETURN NULL; END"
            yield f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
        action = f"BEGIN {add} END" if sqlite else f"EXECUTE FUNCTION {name}()"
        yield f"CREATE TRIGGER {name} AFTER {event} ON {table} FOR EACH ROW WHEN ({condition}) {action}"


def view() -> str:
    """Creates the view."""
    sums = (
        f"SELECT '{name}' AS name, CAST(COALESCE(SUM({part.format(row=table)}), 0) AS BIGINT) AS amount FROM {table}"
        for table, parts in PARTS.items()
        for name, part in parts.items()
    )
    return f"CREATE VIEW counted AS {' UNION ALL '.join(sums)}"


def up(_migrator: object, database: Database) -> None:
    """Creates tables, triggers and the view. `storage.tables.totals` adds what was there before."""
    sqlite = isinstance(database, SqliteDatabase)
    created = (statement for table in PARTS for statement in triggers(table, sqlite=sqlite))
    for statement in (*CREATE_TABLES, *created, view()):
        database.execute_sql(statement)
