"""Processes that share a database: `python -m tests.support.servers.storage_processes race|convert URL`."""

import subprocess
import sys

from storage.database import Database
from storage.errors import NoCredits
from storage.ids import new_id
from storage.tables import files, ledger
from storage.tables.files import StoredResult
from tests.support.samples.storage import OWNER, SOURCE


def start(*arguments: str) -> subprocess.Popen[str]:
    """Starts one of the functions below in a process with pipes for input and output."""
    command = [sys.executable, "-m", "tests.support.servers.storage_processes", *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def answer(process: subprocess.Popen[str]) -> str:
    """Returns the next line of the output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> int:
    """Closes the input, waits for the process and returns its exit code."""
    with process:
        assert process.stdin is not None
        process.stdin.close()
    return process.returncode


def race(database: Database) -> None:
    """Tries to hold a credit of each account read from the input."""
    print("ready", flush=True)
    for account in sys.stdin:
        try:
            database.run_blocking(ledger.reserve, account.strip(), 1, OWNER, 600)
        except NoCredits:
            print("refused", flush=True)
        else:
            print("won", flush=True)


def convert(database: Database) -> None:
    """Processes each file read from the input and prints the id of the file with the result."""
    print("ready", flush=True)
    for line in sys.stdin:
        account, file_id = line.split()
        result = StoredResult(new_id("blob"), 40, "{}")
        print(database.run_blocking(files.mark_processed, account, file_id, SOURCE, result, 600).file_id, flush=True)


def main(what: str, url: str) -> None:
    database = Database(url)
    {"race": race, "convert": convert}[what](database)
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
