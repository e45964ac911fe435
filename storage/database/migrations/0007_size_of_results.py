"""The size of each result, which counts towards the storage quota of its account."""

from peewee import Database, SqliteDatabase


def up(_migrator: object, database: Database) -> None:
    """Adds the column, and fills it from the JSON of the results."""
    size = "json_extract(outcome, '$.size')" if isinstance(database, SqliteDatabase) else "(outcome::json ->> 'size')"
    database.execute_sql("ALTER TABLE file ADD COLUMN result_size BIGINT")
    database.execute_sql(f"UPDATE file SET result_size = CAST({size} AS BIGINT) WHERE outcome IS NOT NULL")
