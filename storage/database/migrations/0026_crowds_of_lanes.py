"""An index for the lanes of the new accounts of an address."""

from peewee import Database

from storage.database.migrate import create_index

atomic = False


def up(_migrator: object, database: Database) -> None:
    """Creates the index."""
    create_index(database, "lane_crowd", "lane (crowd) WHERE crowd IS NOT NULL")
