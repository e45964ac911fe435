"""Conversions: planned, charged, and run."""
