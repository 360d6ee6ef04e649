"""The counting service."""
