"""What the service knows about cameras."""
