"""Scenarios in which something fails beside, below or inside of a server that runs."""
