#!/bin/sh
# Checks format, lint, types and tests, as a change must pass them. Needs `sh config/setup.sh test`.
set -eu
cd "$(dirname "$0")/.."
# Python compiles what the tests load once, instead of in each of their hundreds of processes.
unset PYTHONDONTWRITEBYTECODE
.venv/bin/ruff format --check .
.venv/bin/ruff check .
.venv/bin/mypy &
types=$!
.venv/bin/pytest --collect-only -q >/dev/null  # Compiles the tests once instead of in each of the four processes.
.venv/bin/pytest -n 4 --dist worksteal -q
wait "$types"
