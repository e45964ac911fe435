"""Transactions on SQLite or PostgreSQL, and the migrations of their schema."""

from storage.database.database import Database as Database
from storage.database.transaction import Transaction as Transaction
