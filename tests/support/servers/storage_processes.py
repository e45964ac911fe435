"""Processes that share a database: `python -m tests.support.servers.storage_processes race|work|convert URL …`."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from storage.database import Database
from storage.errors import NoCredits
from storage.ids import new_id
from storage.tables import files, idempotency, ledger
from storage.tables.files import ConvertedFile
from storage.tables.idempotency import Claim, StoredResponse
from storage.tables.ledger import ServerInstance
from tests.support.samples.storage import OWNER, USE, settle_and


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
        outcome = ConvertedFile("webp", 40, "photo.webp", "image/webp", new_id("blob"), seconds=0.25)
        print(database.run_blocking(files.mark_processed, account, file_id, outcome, 600).id, flush=True)


def work(database: Database, account: str, answers: Path) -> None:
    """Pays for operations until killed, and writes the keys of completed ones to a file.

    Like a client, it repeats incomplete operations with the same idempotency key.
    """
    number = len(answers.read_text().splitlines()) if answers.exists() else 0
    with answers.open("ab", buffering=0) as journal:
        while True:
            key = f"{answers.name}-{number}"
            begun = database.run_blocking(
                idempotency.begin, idempotency.new_claim(account, "/convert", key, OWNER), "f", 0
            )
            if isinstance(begun, Claim) and not _pay(database, begun, fails=number % 5 == 4 and os.getpid() % 2 == 0):
                continue
            journal.write(f"{key}\n".encode())
            number += 1


def _pay(database: Database, claim: Claim, *, fails: bool) -> bool:
    owner = ServerInstance(OWNER.server, str(os.getpid()))
    hold = database.run_blocking(ledger.reserve, claim.account, 1, owner, 600)
    if fails and os.urandom(1)[0] % 2:
        database.run_blocking(ledger.release, claim.account, hold.id, USE)
        database.run_blocking(idempotency.abandon, claim)
        return False
    finish = partial(idempotency.finish, claim=claim, stored=StoredResponse(200))
    database.run_blocking(settle_and, hold, finish)
    return True


def main(what: str, url: str, *arguments: str) -> None:
    database = Database(url)
    if what == "race":
        race(database)
    elif what == "convert":
        convert(database)
    elif what == "work":
        account, *files = arguments
        with ThreadPoolExecutor(len(files)) as threads:
            for answers in files:
                threads.submit(work, database, account, Path(answers))
    database.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
