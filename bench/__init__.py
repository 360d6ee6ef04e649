"""What `uepnet bench` runs."""
