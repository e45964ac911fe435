"""Chromium: how it is started and driven, and how it loads pages without a network."""
