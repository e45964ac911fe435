"""What an operator may change."""
