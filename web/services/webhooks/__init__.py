"""Webhooks, and requests to the URLs of clients."""
