"""Payments: checkout and the events of the payment provider."""
