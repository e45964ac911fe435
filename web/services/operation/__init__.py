"""Operation of a server: its processes, health, maintenance, and shutdown."""
