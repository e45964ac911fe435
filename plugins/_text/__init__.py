"""Text and markup: HTML pages, archives of them, and paper."""
