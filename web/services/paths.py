"""Where the API stands below the service's address."""

from __future__ import annotations

API = "/api/v1"


def download_url(file_id: str) -> str:
    """The path at which a processed file can be fetched."""
    return f"{API}/files/{file_id}/download"
