"""The rules of the service. Nothing here knows Tornado."""
