"""Messages of PostgreSQL about jobs, by which servers learn what others have changed."""

from peewee import Database, SqliteDatabase

CREATE_FUNCTION = """
    CREATE FUNCTION tell_job() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify('convertd_job', NEW.state || ' ' || NEW.id);
        RETURN NULL;
    END $$
    """
CREATE_TRIGGER = (
    "CREATE TRIGGER tell_job AFTER INSERT OR UPDATE OF state, done ON job FOR EACH ROW EXECUTE FUNCTION tell_job()"
)


def up(_migrator: object, database: Database) -> None:
    """Creates the trigger. SQLite has no messages."""
    if not isinstance(database, SqliteDatabase):
        database.execute_sql(CREATE_FUNCTION)
        database.execute_sql(CREATE_TRIGGER)
