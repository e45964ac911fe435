"""The keys by which servers sign what they give to clients and verify it later, such as links to files."""

from secrets import token_hex

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Creates the table and the key of links, 32 random bytes as hexadecimal digits."""
    database.execute_sql("CREATE TABLE signing_key (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    database.execute_sql(f"INSERT INTO signing_key VALUES ('links', '{token_hex(32)}')")
