"""Fault tests: something fails while a server processes requests."""
