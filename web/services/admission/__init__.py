"""Admission of conversions: which starts next, and which is refused."""
