"""What outlives a request."""
