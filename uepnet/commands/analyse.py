"""`uepnet analyse`: the paper's tables and figures, from data."""

import argparse
import sys
from pathlib import Path

EPILOG = """what:
  discretisation   what each partition and kind of proxy costs when every cell is classified correctly (Table 6)
  intervals        the same over the number of intervals (Figure 4's question, without training)
  contributions    which true intervals a model's error comes from, and the background's share (Figure 6)
  report           what a model is worth: errors, ranges, empty scenes, the same picture at other sizes
  decoding         which way of reading a trained run's outputs gives the lowest error and counts nobody where nobody is

examples:
  uepnet analyse discretisation --dataset shanghaitech-b --root ShanghaiTech --split test --json
  uepnet analyse intervals --dataset shanghaitech-a --root ShanghaiTech --plot sweep.png
  uepnet analyse contributions --dataset shanghaitech-b --root ShanghaiTech --split val --model models/mine
  uepnet analyse decoding --dataset shanghaitech-b --root ShanghaiTech --model runs/mine --empty no-people --write"""
TOO_MANY = (
    "uepnet: read in any of these ways the run counts people in pictures that hold nobody, so none is chosen: "
    "train on with more such pictures (--empty, --empty-share)."
)


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.sources import data_options

    parser.description = "The paper's tables and figures from data. Partitions are fitted on train."
    parser.epilog = EPILOG
    parser.add_argument("what", choices=["discretisation", "intervals", "contributions", "decoding", "report"])
    data_options(parser, split="val")
    parser.add_argument("--intervals", type=int, default=25, help="intervals, background included (25)")
    parser.add_argument("--cell", type=int, choices=[8, 16, 32], default=8)
    parser.add_argument(
        "--knee", type=float, default=0.5, help="where two-linear turns coarse, in people per cell (0.5)"
    )
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="a model directory or a run; default: the bundled model"
    )
    parser.add_argument(
        "--empty", default="", metavar="DIR", help="decoding: pictures with nobody (the held-back half)"
    )
    parser.add_argument(
        "--scales",
        type=float,
        nargs="+",
        default=[],
        metavar="S",
        help="decoding: sizes of the image to try (the model's)",
    )
    parser.add_argument(
        "--no-mirror", action="store_true", help="decoding: do not try the mirror image, which doubles a count's time"
    )
    parser.add_argument("--write", action="store_true", help="decoding: write the best way into the run's artifact")
    parser.add_argument("--plot", type=Path, metavar="PNG")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json

    from uepnet.commands.sources import check_outputs

    check_outputs(picture=args.plot)
    results = {
        "discretisation": _discretisation,
        "intervals": _intervals,
        "contributions": _contributions,
        "decoding": _decoding,
        "report": _report,
    }
    answer, rows = results[args.what](args)
    if args.json:
        print(json.dumps(answer))
    else:
        from rich.console import Console
        from rich.table import Table

        table = Table()
        for title in rows[0]:
            table.add_column(str(title), justify="right")
        for row in rows[1:]:
            table.add_row(*(cell if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
        Console().print(table)
    if answer.get("fit_for_service") is False:
        print(TOO_MANY, file=sys.stderr)
        return 1
    return 0


Answer = tuple[dict[str, object], list[list[str | float]]]


def _discretisation(args: argparse.Namespace) -> Answer:
    from uepnet.commands.sources import samples_of
    from uepnet.training.analyse import count_maps, discretisation, plot_table

    fitted = count_maps(samples_of(args, "train"), args.cell)
    table = discretisation(fitted, count_maps(samples_of(args), args.cell), args.intervals, args.knee)
    if args.plot:
        plot_table(table, args.plot)
    rows: list[list[str | float]] = [["partition", "mean", "midpoint", "median"]]
    rows += [[method, row["mean"], row["midpoint"], row["median"]] for method, row in table.items()]
    return {"table": table}, rows


def _intervals(args: argparse.Namespace) -> Answer:
    from uepnet.commands.sources import samples_of
    from uepnet.training.analyse import count_maps, interval_sweep, plot_sweep

    fitted = count_maps(samples_of(args, "train"), args.cell)
    rows = interval_sweep(fitted, count_maps(samples_of(args), args.cell), (5, 10, 15, 20, 25, 40, 60), args.knee)
    if args.plot:
        plot_sweep(rows, args.plot)
    return {"rows": rows}, [list(rows[0]), *[list[str | float](row.values()) for row in rows]]


def _contributions(args: argparse.Namespace) -> Answer:
    from uepnet.commands.models import open_model
    from uepnet.commands.sources import samples_of
    from uepnet.training.analyse import error_contributions, plot_contributions
    from uepnet.training.config import parse_kernel

    artifact, run_tiles, _ = open_model(args.model)
    kernel = parse_kernel(str(artifact.training.get("settings", {}).get("kernel", "")))
    answer = error_contributions(samples_of(args), artifact, run_tiles, kernel)
    shares, cells = answer["shares"], answer["cells"]
    assert isinstance(shares, list) and isinstance(cells, list)
    if args.plot:
        plot_contributions(shares, args.plot)
    rows: list[list[str | float]] = [["interval", "cells", "share of error"]]
    rows += [[str(index), cell, share] for index, (cell, share) in enumerate(zip(cells, shares, strict=True))]
    return dict(answer), rows


def _decoding(args: argparse.Namespace) -> Answer:
    from dataclasses import asdict

    from rich.console import Console
    from rich.progress import Progress

    from uepnet.commands.sources import pairs
    from uepnet.model.artifact import Artifact
    from uepnet.model.errors import InputError
    from uepnet.training import dataset
    from uepnet.training.decoding import Row, best, compare
    from uepnet.training.prepare import empties, load_network

    if args.model is None or not (args.model / "weights.safetensors").is_file():
        raise InputError("Ways of decoding are compared on a training run: name it with --model.")
    if not all(0 < scale <= 4 for scale in args.scales):
        raise InputError("--scales must lie above 0 and be at most 4.")
    artifact = Artifact.load(args.model)
    sources = pairs(args.dataset, args.root)
    groups = [dataset.load(name, Path(root), args.split, args.fold) for name, root in sources]
    nobody = empties(args.empty, held_back=True)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("counting", total=sum(map(len, groups)) + len(nobody))
        network = load_network(args.model, artifact)
        rows = compare(network, artifact, groups, nobody, lambda: bar.advance(task), args.scales, not args.no_mirror)
    chosen = best(rows, artifact.scale)
    fit = chosen.fit_for_service()
    if args.write and fit:
        chosen.way.apply(artifact).save(args.model)
    names = " / ".join(name for name, _ in sources)
    nobody_at = "nobody there: median / 90 % / mean"
    table: list[list[str | float]] = [["way", f"MAE {names}", f"scaled {names}", nobody_at, ""]]
    # The paper's argmax, the plain expectation, the chosen way, and the ten with the lowest error.
    lowest = sorted(rows, key=lambda row: sum(row.scaled))[:10]
    for row in rows:
        if row is chosen or row in lowest or (row.way.temperature == 1 and row.way.floor == 0):
            mark = "too many" if not row.fit_for_service() else "chosen" if row is chosen else ""
            numbers = [
                " / ".join(f"{v:.{digits}f}" for v in values)
                for values, digits in ((row.mae, 1), (row.scaled, 2), (row.empty, 2))
            ]
            table.append([str(row.way), *numbers, mark])

    def told(row: Row) -> dict[str, object]:
        return {"scaled": row.scaled, **{key: value for key, value in asdict(row).items() if key != "errors"}}

    return {"rows": [told(row) for row in rows], "chosen": told(chosen), "fit_for_service": fit}, table


def _report(args: argparse.Namespace) -> Answer:
    from rich.console import Console
    from rich.progress import Progress

    from uepnet.commands.models import open_model
    from uepnet.commands.sources import pairs, samples_of
    from uepnet.training import dataset
    from uepnet.training.prepare import empties
    from uepnet.training.report import report

    artifact, run_tiles, _ = open_model(args.model)
    groups = {
        name: dataset.load(name, Path(root), args.split, args.fold) for name, root in pairs(args.dataset, args.root)
    }
    held, nobody = samples_of(args, "calibration"), empties(args.empty, held_back=True)
    work = sum(len(group) + len(group[::3]) for group in groups.values()) + len(held) + len(nobody)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("counting", total=work)
        numbers = report(groups, held, nobody, artifact, run_tiles, lambda: bar.advance(task))
    rows: list[list[str | float]] = [["of", "what", "value"]]
    for name, values in numbers.items():
        rows += [[name, key.replace("_", " "), "-" if value is None else float(value)] for key, value in values.items()]
    return dict(numbers), rows
