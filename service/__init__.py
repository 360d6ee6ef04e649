"""The HTTP service, its client, and video."""
