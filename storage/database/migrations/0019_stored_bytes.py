"""The size of the files of each account, kept by triggers: to add a file must not take longer the more there are."""

from collections.abc import Iterator

from peewee import Database, SqliteDatabase

CREATE_TABLE = "CREATE TABLE stored_bytes (account TEXT PRIMARY KEY, bytes BIGINT NOT NULL)"
SIZE = (
    "COALESCE({row}.result_size, 0)"
    " + CASE WHEN {row}.source IS NOT NULL AND {row}.source_file IS NULL THEN {row}.original_size ELSE 0 END"
)
"""What a file counts for. Those with a `source_file` share its upload."""

# The first change of a file of the account counts all its files. Others that change files at the same time wait for the
# row, and then add what they have changed.
ADD = """
    INSERT INTO stored_bytes
    SELECT {row}.account, CASE WHEN EXISTS (SELECT 1 FROM stored_bytes WHERE account = {row}.account) THEN 0
        ELSE (SELECT CAST(COALESCE(SUM({size}), 0) AS BIGINT) FROM file WHERE file.account = {row}.account) END
    WHERE TRUE ON CONFLICT (account) DO UPDATE SET bytes = stored_bytes.bytes + {change};
"""


def triggers(*, sqlite: bool) -> Iterator[str]:
    """Creates the triggers."""
    new, old = (f"({SIZE.format(row=row)})" for row in ("NEW", "OLD"))
    for event, change in {"INSERT": new, "UPDATE": f"({new} - {old})", "DELETE": f"-{old}"}.items():
        add = ADD.format(row="OLD" if event == "DELETE" else "NEW", size=SIZE.format(row="file"), change=change)
        name = f"add_stored_bytes_{event.lower()}"
        if not sqlite:
            body = f"BEGIN {add} RETURN NULL; END"
            yield f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ {body} $$"
        action = f"BEGIN {add} END" if sqlite else f"EXECUTE FUNCTION {name}()"
        yield f"CREATE TRIGGER {name} AFTER {event} ON file FOR EACH ROW WHEN ({change} <> 0) {action}"


def up(_migrator: object, database: Database) -> None:
    """Creates the table and the triggers."""
    for statement in (CREATE_TABLE, *triggers(sqlite=isinstance(database, SqliteDatabase))):
        database.execute_sql(statement)
