"""Deployment: monitoring files, a smoke test, and replicas over many machines."""
