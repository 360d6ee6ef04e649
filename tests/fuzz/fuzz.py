"""Coverage-guided fuzzing of one target: `make fuzz`, which needs the extra `fuzz` (atheris).

    python tests/fuzz/fuzz.py image build/fuzz/image -max_total_time=60

The folder keeps what found new code; libFuzzer's own options follow it. An input that makes a target fail is written to
the working directory: put it into tests/fuzz/found/TARGET/, where a test runs it from then on.
"""

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["uepnet", "PIL", "python_multipart"]):
    from targets import TARGETS, seeds  # beside this script


def main() -> None:
    target, corpus = sys.argv[1], Path(sys.argv[2])
    corpus.mkdir(parents=True, exist_ok=True)
    for content in seeds(target):
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content)
    atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[target])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
