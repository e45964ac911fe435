"""Formats: one module for each format or family of formats."""
