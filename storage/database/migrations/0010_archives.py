"""Records of the usage and charges that were moved to files, and the deletion of the holds that version 1.0.0 kept."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Creates the table and the backfill."""
    database.execute_sql("CREATE TABLE archive (before BIGINT PRIMARY KEY, sha256 TEXT NOT NULL, at BIGINT NOT NULL)")
    database.execute_sql("INSERT INTO backfill VALUES ('ended_holds', '')")
