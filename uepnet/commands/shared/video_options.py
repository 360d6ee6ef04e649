"""Options of `uepnet video`: which frames are counted, and what is written."""

import argparse
import re
from datetime import datetime
from fractions import Fraction
from pathlib import Path

from uepnet.commands.shared.options import positive_number


def add_frames(parser: argparse.ArgumentParser) -> None:
    which = parser.add_argument_group("which frames")
    which.add_argument("--every", type=positive_number, metavar="N", help="count every N-th frame (default: all)")
    which.add_argument(
        "--fps", type=rate, metavar="F", help="count at most F frames per second of the video; 0.2 is one in 5 s"
    )
    which.add_argument(
        "--start",
        type=moment,
        default=Fraction(0),
        metavar="TIME",
        help="count from this moment on: seconds or [H:]MM:SS (default: 0)",
    )
    which.add_argument("--end", type=moment, metavar="TIME", help="count until before this moment (default: the end)")
    which.add_argument(
        "--rate",
        type=rate,
        default=Fraction(25),
        metavar="F",
        help="frame rate of the pictures in a folder (default: 25)",
    )
    which.add_argument(
        "--began",
        type=clock,
        metavar="TIME",
        help="when the first frame of a file was taken: 2026-05-01T08:00, local time unless it ends in Z or +02:00",
    )
    which.add_argument(
        "--deinterlace",
        choices=["auto", "on", "off"],
        default="auto",
        help="auto deinterlaces frames that are marked as interlaced (default: auto)",
    )
    which.add_argument(
        "--no-retry",
        action="store_true",
        help="end with an error if a live source cannot be opened (default: try again until it can)",
    )


def add_outputs(parser: argparse.ArgumentParser) -> None:
    out = parser.add_argument_group("what is written")
    out.add_argument(
        "--out",
        metavar="FILE",
        help="file for the counts; - for standard output (default: SOURCE's name with .jsonl, in this folder); "
        "for several sources a folder",
    )
    out.add_argument("--camera", metavar="NAME", help="name of the camera in the written files and on the server")
    out.add_argument("--csv", type=Path, metavar="FILE", help="write a CSV table of all counts, at the end")
    out.add_argument(
        "--csv-per",
        choices=["frame", "minute", "hour"],
        default="frame",
        help="one row per frame, or mean, minimum and maximum per minute or hour (default: frame)",
    )
    out.add_argument(
        "--annotate",
        type=Path,
        metavar="FILE.mp4",
        help="write a video with heat map, zones, counts and time; for several sources a folder",
    )
    out.add_argument("--plot", type=Path, metavar="FILE.png", help="draw the counts over time, at the end")
    again = out.add_mutually_exclusive_group()
    again.add_argument("--resume", action="store_true", help="continue after the last frame in the counts")
    again.add_argument("--overwrite", action="store_true", help="replace output files that exist")
    out.add_argument("--quiet", action="store_true", help="print no progress and no summary")


def rate(text: str) -> Fraction:
    try:
        value = Fraction(text)
    except (ValueError, ZeroDivisionError):
        value = Fraction(0)
    if value <= 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a number of frames per second, such as 25, 0.5 or 30000/1001"
        )
    return value


def moment(text: str) -> Fraction:
    match = re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d+)?)", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time, such as 90, 1:30 or 0:01:30.5")
    hours, minutes, seconds = (Fraction(part or 0) for part in match.groups())
    return 3600 * hours + 60 * minutes + seconds


def clock(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a time on the clock, such as 2026-05-01T08:00") from None
