#!/bin/sh
# Checks format, lint, types and tests, as a change must pass them. Needs `sh config/setup.sh test`.
set -eu
cd "$(dirname "$0")/.."
# Python compiles what the tests load once, instead of in each of their hundreds of processes.
unset PYTHONDONTWRITEBYTECODE
# Temporary files are in memory if 6 GB are free there: tests write databases all the time, and to write those to a disk
# takes up to a third of the CPU time.
free=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ -z "${TMPDIR:-}" ] && [ "${free:-0}" -gt 6000000 ]; then
    TMPDIR=$(mktemp -d /dev/shm/tests-XXXXXX)  # short, as paths of sockets have to be
    export TMPDIR
    chmod 1777 "$TMPDIR"
    trap 'rm -rf "$TMPDIR"' EXIT
    trap 'exit 1' INT TERM
fi
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy &
types=$!
.venv/bin/pytest --collect-only -q >/dev/null  # Compiles the tests once instead of in each of the four processes.
.venv/bin/pytest -n 4 --dist worksteal -q
wait "$types"
