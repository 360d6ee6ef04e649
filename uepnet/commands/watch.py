"""`uepnet watch`: send the frames of all cameras in a camera file to a server."""

import argparse
import signal
import sys
from pathlib import Path
from threading import Event
from unicodedata import normalize

EPILOG = """examples:
  uepnet watch cameras.yml --server http://localhost:8000
  UEPNET_API_KEY=... uepnet watch cameras.yml --server https://counts.example.org
  uepnet watch cameras.yml --only gate --only "Gleis 3 Süd"
  uepnet watch cameras.yml --check                   read the file, print what would be watched, and exit

A source is an address (rtsp://..., http://... of a stream or of a .jpg), the number of a camera of this machine, or a
video or folder (for rehearsals: repeated in real time; relative paths start at the folder of the camera file).
A camera or server that fails is tried again until it works; the log has a line when it is lost and when it is back.
The server reads the same file with `uepnet serve --cameras cameras.yml` for zones, ground and limits.

Exit code: 0 stopped by SIGTERM or Ctrl-C, 2 wrong usage or camera file."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Send the frames of all cameras in a camera file to a server, until SIGTERM or Ctrl-C."
    parser.epilog = EPILOG
    parser.add_argument("file", type=Path, metavar="FILE", help="the camera file (YAML)")
    parser.add_argument(
        "--server",
        metavar="URL",
        default="http://127.0.0.1:8000",
        help="address of the service; its key is read from UEPNET_API_KEY (default: http://127.0.0.1:8000)",
    )
    parser.add_argument("--only", action="append", metavar="NAME", help="watch only this camera; may be repeated")
    parser.add_argument("--check", action="store_true", help="check the camera file and exit")


def run(args: argparse.Namespace) -> int:
    import logging

    from uepnet.model.camera_file import load_cameras
    from uepnet.model.errors import InputError

    cameras = load_cameras(args.file).cameras
    only = [normalize("NFC", name) for name in args.only or ()]  # as the camera file's names
    unknown = [name for name in only if name not in cameras]
    if unknown:
        raise InputError(f'{args.file} has no camera "{unknown[0]}"; it has: {", ".join(cameras)}.')
    chosen = {name: entry for name, entry in cameras.items() if entry.source and name in (only or cameras)}
    if args.check:
        print(f"{args.file}: {len(cameras)} cameras, {len(chosen)} with a source: {', '.join(chosen)}")
        return 0
    if not chosen:
        raise InputError(f"{args.file} has no camera with a source.")

    from uepnet.video.watch import watch

    logging.basicConfig(
        format="%(asctime)s %(levelname)-7s %(message)s", datefmt="%Y-%m-%dT%H:%M:%S%z", stream=sys.stderr
    )
    logging.getLogger("uepnet").setLevel(logging.INFO)
    stop = Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        watch(chosen, args.server, args.file.resolve().parent, stop)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0
