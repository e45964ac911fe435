"""What receipts show besides the price: the tax that is part of it, and the buyer's address."""

from peewee import Database


def up(_migrator: object, database: Database) -> None:
    """Adds the columns."""
    database.execute_sql("ALTER TABLE purchase ADD COLUMN tax BIGINT")
    database.execute_sql("ALTER TABLE purchase ADD COLUMN buyer TEXT")
