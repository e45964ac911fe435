"""Persistent state: accounts, credits, files, blobs and rate limits."""
