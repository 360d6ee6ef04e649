"""`uepnet history`: export the counts that the service has stored."""

import argparse
import csv
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from unicodedata import normalize

if TYPE_CHECKING:
    from uepnet.service.cameras.database import Database

EPILOG = """examples:
  uepnet history export --camera gate --out gate.csv
  uepnet history export --start 2026-05-01T00:00:00Z --end 2026-06-01T00:00:00Z --resolution hour --out may.csv
  uepnet history export --history postgresql://uepnet@db/uepnet --resolution raw --out -

Times are UTC. Periods without a count have no row. The service can keep running during the export."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = "Export counts from the history database of the service."
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    export = actions.add_parser(
        "export",
        help="write counts as CSV",
        description="Write counts of one or all cameras as CSV.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    export.add_argument("--camera", metavar="NAME", help="one camera (default: all)")
    export.add_argument(
        "--start", type=moment, metavar="TIME", help="ISO 8601 with a time zone (default: the first count)"
    )
    export.add_argument("--end", type=moment, metavar="TIME", help="end of the period, excluded (default: now)")
    export.add_argument(
        "--resolution",
        choices=("raw", "minute", "hour", "day"),
        default="minute",
        help="every count, or mean, minimum and maximum per minute, hour or day (default: minute)",
    )
    export.add_argument("--out", type=Path, required=True, metavar="FILE", help="CSV file; - for standard output")
    export.add_argument("--overwrite", action="store_true", help="replace the file if it exists")
    export.add_argument(
        "--history",
        metavar="URL",
        help="SQLAlchemy URL of the database (default: UEPNET_HISTORY, or the SQLite file in the state directory)",
    )


def run(args: argparse.Namespace) -> int:
    import os

    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    from uepnet.model.errors import InputError
    from uepnet.model.outputs import Output, check_outputs
    from uepnet.service.cameras.database import Database, database_reason, default_url

    url = args.history or os.environ.get("UEPNET_HISTORY") or default_url()
    try:
        parsed = make_url(url)
        path = parsed.database if parsed.get_backend_name() == "sqlite" else None
    except ArgumentError:
        path = url  # "off" among them
    if path is not None and not Path(path).is_file():
        raise InputError(f"There is no history at {path}: give the database of the service with --history URL.")
    # SQLite keeps its newest rows in files beside the database.
    inputs = (
        [] if path is None else [f"{path}{suffix}" for suffix in ("", "-wal", "-shm") if Path(path + suffix).exists()]
    )
    check_outputs([Output("--out", args.out)], inputs, args.overwrite)
    if args.start is not None and args.end is not None and args.start >= args.end:
        raise InputError("--start must lie before --end.")
    database = Database(url)
    try:
        _export(database, args)
    except SQLAlchemyError as error:
        raise InputError(f"The history cannot be read: {database_reason(error)}.") from None
    finally:
        database.close()
    return 0


def _export(database: "Database", args: argparse.Namespace) -> None:
    from sqlalchemy import select

    from uepnet.model.errors import InputError
    from uepnet.model.outputs import whole_text
    from uepnet.service.cameras.database import series
    from uepnet.service.cameras.history import COLUMNS, History, csv_row

    start = 0 if args.start is None else int(1000 * args.start.timestamp())
    end = 2**53 if args.end is None else int(1000 * args.end.timestamp())
    with database.reading() as connection:
        names = sorted(set(connection.execute(select(series.c.camera)).scalars()))
        chosen = names
        if args.camera is not None:
            chosen = [name for name in names if name == normalize("NFC", args.camera)]
            if not chosen:
                raise InputError(f'The history has no camera "{args.camera}"; it has: {", ".join(names) or "none"}.')
        with whole_text(args.out) as file:
            writer = csv.writer(file)
            writer.writerow(["camera", *COLUMNS])
            for name in chosen:
                for point in History(database).points(connection, name, start, end, args.resolution):
                    writer.writerow([name, *csv_row(point)])


def moment(text: str) -> datetime:
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a time such as 2026-05-01T12:00:00Z") from None
    if parsed.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text} has no time zone: add Z or +02:00")
    return parsed
