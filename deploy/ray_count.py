"""Count a very large number of images on many machines, with Ray Data.

    python -m uepnet.deploy.ray_count photos/ --out counts                       this machine alone
    python -m uepnet.deploy.ray_count s3://bucket/photos --out s3://bucket/counts --address auto --format parquet

Folders are listed by the cluster while it counts, so counting starts at once. Each worker process loads the model once
and writes its counts in parts: one file per --part images, which appears whole. A part is named after the images in it.
Run the same command again to continue: images that the parts already have are left out; those that failed are tried
again. An image that cannot be counted is a row with its error. Parts of another model are refused.

Without --address a cluster is started on this machine alone. Ray opens its ports on all interfaces of a cluster's
machines: keep them behind a firewall.

Exit codes: 0 all images counted, 1 some failed, 2 wrong usage or input.
"""

import argparse
import hashlib
import os
import secrets
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
from pyarrow import csv as pacsv
from pyarrow import parquet

from uepnet.model.artifact import Artifact, model_directory
from uepnet.model.counter import Counter
from uepnet.model.errors import InputError, UepnetError
from uepnet.model.file_names import IMAGE_SUFFIXES, printable
from uepnet.model.runtime.runtime import BUNDLED

SCHEMA = pa.schema(
    [
        ("path", pa.string()),
        *((name, pa.float64()) for name in ("count", "low", "high", "saturated")),
        *((name, pa.string()) for name in ("warnings", "model", "error")),
    ]
)
Row = dict[str, Any]


def images_in(folder: str) -> Iterator[str]:
    """The images in a folder and below it, one listing at a time; hidden names are left out."""
    system, path = filesystem(folder)
    waiting = [path]
    while waiting:
        for entry in system.get_file_info(pafs.FileSelector(waiting.pop(), recursive=False)):
            if entry.base_name.startswith("."):
                continue
            if entry.type == pafs.FileType.Directory:
                waiting.append(entry.path)
            elif PurePosixPath(entry.base_name).suffix.lower() in IMAGE_SUFFIXES:
                yield entry.path


def filesystem(place: str) -> tuple[pafs.FileSystem, str]:
    """A local folder or an address such as s3://bucket/folder, and the path in it."""
    try:
        if "://" in place:
            system, path = pafs.FileSystem.from_uri(place)
            return system, str(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(f"{place} cannot be opened: {error}") from None
    return pafs.LocalFileSystem(), os.path.abspath(place)  # noqa: PTH100 - links stay as they are named


class PartCounter:
    """A worker process: counts the images of a part and writes the part."""

    def __init__(self, source: str, out: str, kind: str, model: str | None, threads: int) -> None:
        self._source, _ = filesystem(source)
        self._out, self._folder = filesystem(out)
        self._kind = kind
        self._counter = Counter(model, threads=threads)
        self._model = model_name(self._counter.artifact)

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[float]]:
        rows = [self._row(str(path)) for path in batch["path"]]
        self._write(rows)
        failed = sum(row["error"] is not None for row in rows)
        people = sum(row["count"] or 0.0 for row in rows)
        return {"counted": [len(rows) - failed], "failed": [failed], "people": [people]}

    def _row(self, path: str) -> Row:
        row: Row = dict.fromkeys(SCHEMA.names)
        row |= {"path": printable(path), "model": self._model}
        try:
            with self._source.open_input_stream(path) as file:
                result = self._counter.count(file.read())
        except (UepnetError, OSError) as error:
            return row | {"error": str(error)}
        bounds = result.range
        if bounds is not None:
            row |= {"low": bounds.low, "high": bounds.high}
        return row | {
            "count": result.count,
            "saturated": result.saturated,
            "warnings": " ".join(result.warnings) or None,
        }

    def _write(self, rows: Sequence[Row]) -> None:
        """The part appears whole; counted again after a worker was killed, it replaces itself."""
        name = hashlib.sha256("\n".join(row["path"] for row in rows).encode()).hexdigest()[:24]
        table = pa.Table.from_pylist(list(rows), SCHEMA)
        write_part(self._out, f"{self._folder}/part-{name}.{self._kind}", self._kind, table)


def counted_before(out: str, kind: str, model: str) -> frozenset[str]:
    """The images that the parts in a folder have counts of. Rows of failed ones are taken out: they are tried again."""
    system, folder = filesystem(out)
    system.create_dir(folder, recursive=True)
    found: set[str] = set()
    with_errors: dict[str, pa.Table] = {}
    for entry in system.get_file_info(pafs.FileSelector(folder)):
        if not entry.base_name.startswith("part-") or entry.extension != kind:
            continue
        table = read_part(system, entry.path, kind)
        counted = table.filter(pc.is_valid(table["count"]))
        for other in set(counted["model"].to_pylist()) - {model}:
            raise InputError(f"{out} was counted with the model {other}, this is {model}: choose another --out.")
        found.update(counted["path"].to_pylist())
        if counted.num_rows < table.num_rows:
            with_errors[entry.path] = counted
    for path, counted in with_errors.items():
        if counted.num_rows:
            write_part(system, path, kind, counted)
        else:
            system.delete_file(path)
    return frozenset(found)


def read_part(system: pafs.FileSystem, path: str, kind: str) -> pa.Table:
    try:
        with system.open_input_file(path) as file:
            if kind == "parquet":
                return parquet.read_table(file, columns=SCHEMA.names)
            types = pacsv.ConvertOptions(column_types=SCHEMA, include_columns=SCHEMA.names, strings_can_be_null=True)
            return pacsv.read_csv(file, convert_options=types)
    except (pa.ArrowException, KeyError):
        raise InputError(f"{path} is not a part that this command wrote: choose another --out.") from None


def write_part(system: pafs.FileSystem, path: str, kind: str, table: pa.Table) -> None:
    """The part appears whole; one of the same name is replaced."""
    partial = f"{path.rpartition('/')[0]}/.{uuid4().hex}.partial"
    with system.open_output_stream(partial) as file:
        if kind == "parquet":
            parquet.write_table(table, file)
        else:
            pacsv.write_csv(table, file)
    system.move(partial, path)


def count(args: argparse.Namespace) -> int:
    if args.address is None:
        keep_private()
    import ray

    system, path = filesystem(args.source)
    if system.get_file_info(path).type != pafs.FileType.Directory:
        raise InputError(f"{args.source} is not a folder.")
    before = counted_before(args.out, args.format, model_name(opened(args.model)))
    start_ray(args.address)
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    workers = args.workers or max(1, int(resources.get("CPU", 1)) // args.threads)

    def listed(row: dict[str, str]) -> Iterator[dict[str, str]]:
        return ({"path": path} for path in images_in(row["folder"]) if printable(path) not in before)

    parts = (
        ray.data.from_items([{"folder": args.source}])
        .flat_map(listed, num_cpus=0)  # it must run beside the workers, which take all CPUs
        .map_batches(
            PartCounter,
            batch_size=args.part,
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=args.threads,
            fn_constructor_args=(args.source, args.out, args.format, args.model, args.threads),
        )
    )
    began, counted, failed, people = time.monotonic(), 0, 0, 0.0
    for part in parts.iter_rows():
        counted, failed, people = counted + part["counted"], failed + part["failed"], people + part["people"]
        if not args.quiet:
            speed = (counted + failed) / (time.monotonic() - began)
            sys.stderr.write(f"{counted} counted, {failed} failed, {speed:.1f} per second\n")
    earlier = f" ({len(before)} more before)" if before else ""
    sys.stdout.write(f"{counted} counted{earlier}, {failed} failed: {people:,.0f} people, in {args.out}\n")
    return 1 if failed else 0


def opened(model: str | None) -> Artifact:
    """The description of the model that will count, as `Counter` opens it."""
    return Artifact.load(BUNDLED if model is None else model_directory(Path(model)))


def model_name(artifact: Artifact) -> str:
    return f"{artifact.name} {artifact.version}"


def keep_private() -> None:
    """For a cluster on this machine alone: loopback and a token. Ray reads this when it is imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Linux opens every interface otherwise
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))


def start_ray(address: str | None) -> None:
    """Join a cluster, or start one that only this machine can reach."""
    import ray

    if ray.is_initialized():
        return
    if address is None:
        ray.init(address="local", include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
    else:
        ray.init(address=address, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(
        prog="python -m uepnet.deploy.ray_count",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    found.add_argument("source", metavar="FOLDER", help="a folder or an address such as s3://bucket/photos")
    found.add_argument("--out", required=True, metavar="FOLDER", help="where the parts are written, or continued")
    found.add_argument("--address", metavar="ADDRESS", help="the cluster: auto, or HOST:PORT (default: start one here)")
    found.add_argument("--format", choices=["csv", "parquet"], default="csv", help="of the parts (default: csv)")
    found.add_argument("--model", metavar="DIR", help="a model directory that every machine has (default: bundled)")
    found.add_argument("--workers", type=int, metavar="N", help="processes (default: the cluster's CPUs / --threads)")
    found.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of each process (default: 1)")
    found.add_argument("--part", type=int, default=256, metavar="N", help="images per part (default: 256)")
    found.add_argument("--quiet", action="store_true", help="print no progress")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        if args.part < 1 or args.threads < 1 or (args.workers is not None and args.workers < 1):
            raise InputError("--part, --threads and --workers must be at least 1.")
        return count(args)
    except UepnetError as error:
        sys.stderr.write(f"ray_count: {printable(str(error))}\n")
        return 2


if __name__ == "__main__":
    sys.exit(main())
