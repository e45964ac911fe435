"""Jobs and batches: conversions that outlive a request."""
