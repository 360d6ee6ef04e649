"""The typed HTTP client, synchronous and asynchronous. It needs no server package."""
