"""`uepnet reproduce`: a table of the paper, trained anew with the light network at an equal budget."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uepnet.training.config import Config
    from uepnet.training.paper_tables import TableRow
    from uepnet.training.reproduce_report import MeasuredRow

    Work = list[tuple[TableRow, str, Config]]

TABLES = ("ablation", "partitions", "multi-scale", "strides", "intervals")
EPILOG = """tables:
  ablation      MCP, IPH, PPH and multi-scale training (the paper's ablation studies)
  partitions    UniformLen, UniformNum and UEP with median and mean proxies
  multi-scale   MSE regression, UniformLen, UniformNum and UEP with and without multi-scale training
  strides       cells of 8, 16 and 32 pixels, two-linear and log partitions beside UEP
  intervals     10, 15, 25 and 40 intervals (the paper gives a plot, no figures)

examples:
  uepnet reproduce ablation --root ShanghaiTech --init efficientnet-lite0.pth --out runs/tables --part a
  uepnet reproduce ablation --root ShanghaiTech --init efficientnet-lite0.pth --out runs/tables --part a \\
      --rows MCP MCP-PPH --seed 1                       a second seed where two rows are close

Each run is in OUT/PART/SETTINGS/seed-N. Give all tables the same --out: rows that are the same run are trained once.
Stop with Ctrl-C and go on with the same command: finished rows are kept, and the row under way resumes. After every
row, OUT/TABLE.md, .json and .png are written anew from all runs in OUT. docs/paper.md says what was run."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Train the rows of a table of the paper with the light network, and set them beside the paper's."
    )
    parser.epilog = EPILOG
    parser.add_argument("table", choices=TABLES, help="table to train; see below")
    parser.add_argument("--root", required=True, metavar="DIR", help="folder that holds ShanghaiTech")
    parser.add_argument(
        "--init",
        required=True,
        metavar="FILE",
        help="ImageNet weights of EfficientNet-Lite0 (docs/training.md says where to get them)",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the runs and results")
    parser.add_argument(
        "--part", nargs="+", choices=["a", "b"], help="parts of ShanghaiTech (default: those of the table)"
    )
    parser.add_argument("--rows", nargs="+", metavar="ROW", help="train these rows of the table only (default: all)")
    parser.add_argument(
        "--steps", type=int, default=2000, metavar="STEPS", help="training steps of each row (default: 2000)"
    )
    parser.add_argument("--batch", type=int, default=8, metavar="TILES", help="tiles per step (default: 8)")
    parser.add_argument("--crop", type=int, default=256, metavar="PIXELS", help="side of a tile (default: 256)")
    parser.add_argument("--width", type=int, default=0, metavar="N", help="channels of the decoder; 0 for the usual")
    parser.add_argument("--intervals", type=int, metavar="N", help="intervals, except in table intervals (default: 25)")
    parser.add_argument(
        "--seed",
        type=int,
        nargs="+",
        default=[0],
        metavar="N",
        help="seeds to train the rows with (default: 0)",
    )
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 for all cores")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help="cpu, cuda or cuda:N (default: cpu)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json
    import sys

    from uepnet.commands.shared.interrupts import interrupts
    from uepnet.training.distributed import keep_memory
    from uepnet.training.paper_tables import TABLES
    from uepnet.training.reproduce import reproduce_row

    keep_memory()
    rows = TABLES[args.table]
    parts = list(dict.fromkeys(args.part or sorted({part for row in rows for part in row.paper} or {"b"})))
    budget = _budget(args)
    work = _work(args, rows, parts, budget)
    answer, text = _write(args, rows, parts, budget)  # settings of earlier runs are checked before the first step
    with interrupts() as asked:
        for number, (row, part, config) in enumerate(work, 1):
            told = f"run {number} of {len(work)}: {row.name}, part {part.upper()}, seed {config.seed}"
            print(told, file=sys.stderr, flush=True)
            done = reproduce_row(row, part, config, args.out, stop=lambda: bool(asked))
            if done is not None:
                answer, text = _write(args, rows, parts, budget)
            if done is None or asked:
                print("Stopped and saved. Go on with the same command.", file=sys.stderr)
                return 130
    print(json.dumps(answer) if args.json else text)
    return 0


def _budget(args: argparse.Namespace) -> dict[str, Any]:
    names = ("steps", "batch", "crop", "width", "init", "threads", "device")
    budget: dict[str, Any] = {name: getattr(args, name) for name in names}
    return budget | ({"intervals": args.intervals} if args.intervals else {})


def _work(args: argparse.Namespace, rows: "Sequence[TableRow]", parts: list[str], budget: dict[str, Any]) -> "Work":
    """The runs to train, in order. All settings are checked before the first of them is trained."""
    from uepnet.model.errors import InputError
    from uepnet.training.reproduce import row_config

    unknown = [name for name in args.rows or () if name not in {row.name for row in rows}]
    if unknown:
        names = ", ".join(row.name for row in rows)
        raise InputError(f"The table {args.table} has no row {unknown[0]!r}: choose one of {names}.")
    return [
        (row, part, row_config(row, part, args.root, budget | {"seed": seed}))
        for seed in dict.fromkeys(args.seed)
        for part in parts
        for row in rows
        if not args.rows or row.name in args.rows
    ]


def _write(
    args: argparse.Namespace, rows: "Sequence[TableRow]", parts: list[str], budget: dict[str, Any]
) -> tuple[dict[str, object], str]:
    """The table of all that is finished, as JSON and as text; also written into the folder, with its picture."""
    import json

    from uepnet.model.outputs import whole_text
    from uepnet.training.reproduce import finished_rows
    from uepnet.training.reproduce_report import by_row, compared, markdown, plot

    measured = by_row([one for part in parts for one in finished_rows(rows, part, args.root, budget, args.out)])
    there = {(one.row.name, one.part) for one in measured}
    missing = [f"{row.name} ({part.upper()})" for part in parts for row in rows if (row.name, part) not in there]
    verdicts = [verdict for _, _, verdict in compared(measured)]
    answer = {
        "table": args.table,
        "budget": budget,
        "rows": [_row(one) for one in measured],
        "missing": missing,
        "same_order": {"pairs": len(verdicts), "agreeing": verdicts.count("same order")},
    }
    text = markdown(args.table, measured, budget, missing)
    if measured:
        for name, content in (("md", text), ("json", json.dumps(answer, indent=1) + "\n")):
            with whole_text(args.out / f"{args.table}.{name}") as file:
                file.write(content)
        plot(args.table, measured, args.out / f"{args.table}.png")
    return answer, text


def _row(one: "MeasuredRow") -> dict[str, object]:
    paper = one.row.paper.get(one.part)
    return {
        "row": one.row.name,
        "part": one.part,
        "mae": one.mae,
        "rmse": one.rmse,
        "images": one.runs[0].images,
        "seeds": [{"seed": run.seed, "mae": run.mae, "rmse": run.rmse} for run in one.runs],
        "paper": paper and {"mae": paper[0], "rmse": paper[1]},
    }
