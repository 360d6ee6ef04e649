"""The domain: how an image becomes a count."""
