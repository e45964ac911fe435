"""Servers: when each was last alive, and what those own that have stopped.

Holds, idempotency keys, runs of batches and jobs, and receivers name the run of a server that owns them, until it ends
them, or another server finds that it has stopped. A server that was only paused, and goes on, cannot end them then: the
row of a hold is gone, an idempotency key or a receiver has another claim, and a job another fence.

Servers of the previous release have no row here; what they own has a lease, which they renew. That of this release is
owned until `FOREVER`, so that no server of the previous one takes it.
"""

from storage.database.transaction import LOCKED_ROWS, Statement, Transaction, lookup, unsynced
from storage.tables.ledger import ServerInstance

INTERVAL = 5
"""Seconds between two signs of life of a server."""

TIMEOUT = 25
"""Seconds after its last sign of life at which a server counts as stopped. So far may the clocks of servers differ."""

_KEPT = 86_400  # seconds; a server that was paused may own something again before its next sign of life

BEAT = Statement(
    "INSERT INTO server (name, boot, alive_at) VALUES (:server, :boot, :now)"
    " ON CONFLICT (name) DO UPDATE SET boot = excluded.boot, alive_at = excluded.alive_at"
)
LEAVE = Statement("UPDATE server SET alive_at = :stopped WHERE name = :server AND boot = :boot")
FORGET = Statement("DELETE FROM server WHERE alive_at <= :forgotten")
FIND_STOPPED = Statement("SELECT 1 FROM server WHERE alive_at <= :stopped LIMIT 1")

# Servers that are silent, and earlier runs of those that have started again.
_STOPPED = (
    "EXISTS (SELECT 1 FROM server WHERE server.name = {0}.server"
    " AND (server.boot <> {0}.boot OR server.alive_at <= :stopped))"
)
_CLAIM_STOPPED = (
    "EXISTS (SELECT 1 FROM server WHERE substr({0}, 1, length(server.name) + 1) = server.name || '.'"
    " AND (substr({0}, length(server.name) + 2, length(server.boot) + 1) <> server.boot || '.'"
    " OR server.alive_at <= :stopped))"
)
# Rows that another transaction has locked are left to it, or to the next call: waiting for them could be a deadlock.
GIVE_BACK = (
    Statement(
        "UPDATE hold SET expires_at = :now WHERE id IN (SELECT id FROM hold"
        f" WHERE state = 'held' AND expires_at > :now AND {_STOPPED.format('hold')}{LOCKED_ROWS})"
    ),
    Statement(
        "UPDATE job SET lease_until = :now WHERE id IN (SELECT id FROM job"
        f" WHERE state = 'processing' AND lease_until > :now AND {_STOPPED.format('job')}{LOCKED_ROWS})"
    ),
    Statement(
        "DELETE FROM batch_run WHERE id IN (SELECT id FROM batch_run"
        f" WHERE {_STOPPED.format('batch_run')}{LOCKED_ROWS})"
    ),
    Statement(
        "DELETE FROM idempotency WHERE state = 'running' AND attempt IN (SELECT attempt FROM idempotency"
        f" WHERE state = 'running' AND {_CLAIM_STOPPED.format('attempt')}{LOCKED_ROWS})"
    ),
    Statement(
        "UPDATE receiver SET free_at = :now, claim = NULL WHERE claim IN (SELECT claim FROM receiver"
        f" WHERE claim IS NOT NULL AND {_CLAIM_STOPPED.format('claim')}{LOCKED_ROWS})"
    ),
)


def claim_prefix(owner: ServerInstance) -> str:
    """The beginning of the ids of claims, which name their owner."""
    return f"{owner.server}.{owner.boot}."


@unsynced
def beat(transaction: Transaction, owner: ServerInstance) -> None:
    """Records that the server is alive."""
    transaction.execute_statement(BEAT, now=transaction.now, **vars(owner))


@unsynced
def leave(transaction: Transaction, owner: ServerInstance) -> None:
    """Records that the server has stopped."""
    transaction.execute_statement(LEAVE, stopped=transaction.now - TIMEOUT, **vars(owner))


@lookup
def any_stopped(transaction: Transaction) -> bool:
    """Whether a server has stopped."""
    return bool(transaction.execute_statement(FIND_STOPPED, stopped=transaction.now - TIMEOUT))


def give_back(transaction: Transaction, silence: int = TIMEOUT) -> None:
    """Ends what servers own that were silent for `silence` seconds, and earlier runs of those that have started again.

    Idempotency keys can be used again, receivers claimed and runs of batches have ended. Holds and jobs have expired:
    `ledger.release_expired` returns the credits, and `job_runs.find_left` finds the jobs.
    """
    for statement in GIVE_BACK:
        transaction.execute_statement(statement, now=transaction.now, stopped=transaction.now - silence)
    transaction.execute_statement(FORGET, forgotten=transaction.now - _KEPT)
