"""Counting for many requests at once: the loaded model, the tile queue and the batcher. It knows nothing of HTTP."""
