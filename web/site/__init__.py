"""The web pages: the landing page, documentation, dashboard, and status."""
