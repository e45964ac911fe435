"""Transactions on SQLite or PostgreSQL, and the migrations of their schema."""

from storage.database.database import Database as Database
from storage.database.transaction import Transaction as Transaction
from storage.database.transaction import by_account as by_account
from storage.database.transaction import lookup as lookup
from storage.database.transaction import reading as reading
from storage.database.transaction import unsynced as unsynced
