"""What is said on the terminal: one line, free of control codes."""

import io
import sys

from uepnet.model.file_names import printable


def complain(text: str) -> None:
    """One sentence on standard error."""
    print(f"uepnet: {printable(text)}", file=sys.stderr)


def tolerate_any_text() -> None:
    """What the terminal's encoding does not have is shown as an escape, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
