"""The domain: how an image becomes a count."""

import os

# ONNX Runtime reports its use to its maker unless told not to, and reads this when it is imported. A service that
# counts people tells nobody.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
