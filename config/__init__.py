"""Configuration set by the operator."""
