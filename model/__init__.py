"""The domain: how an image becomes a count."""

import os

# Turns off ONNX Runtime's telemetry, which reports usage to its publisher. ONNX Runtime reads this at import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
