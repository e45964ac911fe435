"""Helpers that tests share; no tests."""
