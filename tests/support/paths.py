"""Where the tests find the project and the real data."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("UEPNET_DATA") or ROOT.parent / "shared" / "data").resolve()
