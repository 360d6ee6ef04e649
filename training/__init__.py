"""From annotated points to weights, an artifact and an exported model."""
