"""Processes that share a database."""

from collections.abc import Callable
from multiprocessing.connection import Connection

from storage.database import Database
from storage.errors import NoCredits
from storage.ids import new_id
from storage.tables import files, ledger
from storage.tables.files import StoredResult
from tests.support.samples.storage import OWNER, SOURCE
from tests.support.servers.forks import FORKS


class StorageProcess:
    """A process with a database of its own, which answers each request by a function below: `race` or `convert`."""

    def __init__(self, function: Callable[..., str], url: str) -> None:
        self._connection, other = FORKS.Pipe()
        self._process = FORKS.Process(target=_serve, args=(function, url, other))
        self._process.start()
        other.close()

    def request(self, *arguments: str) -> None:
        """Sends arguments of the function. The process runs at the same time as this one."""
        self._connection.send(arguments)

    def answer(self) -> str:
        """Returns the next answer; the first one, "ready", is sent when the database is open."""
        return str(self._connection.recv())

    def end(self) -> int | None:
        """Ends the process and returns its exit code."""
        self._connection.close()
        self._process.join()
        return self._process.exitcode


def race(database: Database, account: str) -> str:
    """Tries to hold a credit of the account."""
    try:
        database.run_blocking(ledger.reserve, account, 1, OWNER)
    except NoCredits:
        return "refused"
    return "won"


def convert(database: Database, account: str, file_id: str) -> str:
    """Processes the file and returns the id of the file with the result."""
    result = StoredResult(new_id("blob"), 40, "{}")
    return database.run_blocking(files.mark_processed, account, file_id, SOURCE, result, 600).file_id


def _serve(function: Callable[..., str], url: str, connection: Connection) -> None:
    database = Database(url)
    connection.send("ready")
    try:
        while True:
            connection.send(function(database, *connection.recv()))
    except EOFError:  # the other end is closed
        database.close()
