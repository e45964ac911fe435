"""Stored files, files of requests, and archives of files."""
