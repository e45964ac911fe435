"""The size of each result, which counts towards the storage quota of its account."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the column. A backfill reads earlier sizes from the JSON of the results."""
    database.execute_sql("ALTER TABLE file ADD COLUMN result_size BIGINT")
    database.execute_sql("INSERT INTO backfill VALUES ('result_size', '')")
