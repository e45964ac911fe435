"""The v1 API, its services, and the command."""
