"""Accounts: registration, keys, trials, email, and reports of usage."""
