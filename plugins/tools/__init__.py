"""Tools: one module for each."""
