"""The HTTP protocol on Tornado. No business rules."""
