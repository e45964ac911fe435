"""Values of labels that several modules share."""

from __future__ import annotations

OTHER = "other"
"""What is not ours to name."""
