"""`uepnet doctor`: what is installed, what would run, and whether the device counts like the CPU."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

    from uepnet.model.tiling import Tile

EPILOG = """examples:
  uepnet doctor
  uepnet doctor --model models/mine --device cuda
  uepnet doctor --engine openvino --precision bf16 --image crowd.jpg
  uepnet doctor --model models/mine --parity photos/ --write
  uepnet doctor --json

`--engine auto` uses OpenVINO only if the model records how far its counts are from the reference. `uepnet export`
records that; for models exported elsewhere, --parity measures it on your images and --write records it.

Exit code: 0 the model runs as configured; 1 it does not run, or the device gives other counts than the CPU; 2 wrong
usage."""

SIDE = 512  # of the tile that is counted to compare devices


def configure(parser: argparse.ArgumentParser) -> None:
    from uepnet.commands.shared.options import add_runtime

    parser.description = (
        "Show what is installed, which model, device and precision would run, and check that they work."
    )
    parser.epilog = EPILOG
    parser.add_argument("--model", type=Path, metavar="DIR", help="model directory (default: the bundled model)")
    add_runtime(parser)
    parser.add_argument(
        "--image", type=Path, metavar="FILE", help="image to check with, instead of a generated pattern"
    )
    parser.add_argument(
        "--parity", type=Path, metavar="DIR", help="compare all engines with the fp32 file on these images of crowds"
    )
    parser.add_argument("--write", action="store_true", help="with --parity: record the result in artifact.json")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json
    import logging

    from uepnet.commands.shared.diagnosis import examine
    from uepnet.model.errors import InputError

    if args.write and args.parity is None:
        raise InputError("--write records what --parity measures: give --parity a folder of pictures.")
    if args.parity is not None:
        return _parity(args)
    log = logging.getLogger("uepnet")
    level = log.level
    log.setLevel(logging.ERROR)  # the report itself contains what would be warned of
    wanted = {"device": args.device, "precision": args.precision, "engine": args.engine, "threads": args.threads}
    try:
        found = examine(args.model, wanted, _tile(args.image))
    finally:
        log.setLevel(level)
    if args.json:
        print(json.dumps(found, indent=1))
    else:
        _show(found)
    return 0 if found["healthy"] else 1


def _parity(args: argparse.Namespace) -> int:
    import json
    import sys

    from uepnet.commands.shared.diagnosis import record_parity
    from uepnet.model.runtime import BUNDLED

    model = args.model or BUNDLED
    engines = record_parity(model, args.parity, args.write, lambda text: print(text, file=sys.stderr, flush=True))
    if args.json:
        print(json.dumps({"engines": engines}, indent=1))
    elif args.write:
        print(f"Recorded in {model / 'artifact.json'}.")
    return 0


def _tile(image: Path | None) -> "Tile":
    """The centre of an image, or a pattern of coloured squares; sides multiples of 32."""
    import numpy as np

    from uepnet.model.errors import InputError
    from uepnet.model.image import load_image

    if image is None:
        coarse = np.random.default_rng(0).integers(0, 256, (SIDE // 8, SIDE // 8, 3), dtype=np.uint8)
        return coarse.repeat(8, axis=0).repeat(8, axis=1)
    pixels = load_image(image)
    height, width = (min(SIDE, side) // 32 * 32 for side in pixels.shape[:2])
    if not height or not width:
        raise InputError(f"{image} is too small for a check: it must have at least 32x32 pixels.")
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def _show(found: dict[str, Any]) -> None:
    from rich.console import Console

    from uepnet.commands.shared.diagnosis import PACKAGES

    table = _table()
    machine = found["machine"]
    table.add_row("machine", f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB")
    table.add_row("", f"Python {machine['python']} on {machine['system']}")
    for name, version in found["packages"].items():
        note = f" ({PACKAGES[name]})" if name in PACKAGES else ""
        table.add_row("installed" if name == "uepnet" else "", f"{name} {version or 'not installed'}{note}")
    for index, (name, state) in enumerate(found["providers"].items()):
        table.add_row("" if index else "providers", f"{name}: {state}")
    if found["model"] is not None:
        _show_model(table, found["model"], found["check"])
    for index, problem in enumerate(found["problems"]):
        table.add_row("" if index else "problems", problem)
    table.add_row("verdict", "healthy" if found["healthy"] else "problems found")
    Console(highlight=False, markup=False).print(table)


def _show_model(table: "Table", model: dict[str, Any], check: dict[str, Any]) -> None:
    table.add_row("model", f"{model['name']} {model['version']} ({model['encoder']}), {model['directory']}")
    parities = {f"{precision} in onnxruntime": parity for precision, parity in model["files"].items()}
    for engine, measured in model["engines"].items():
        parities |= {f"{precision} in {engine}": parity for precision, parity in measured.items()}
    for name, parity in parities.items():
        table.add_row("", f"{name}: {_measured(parity)}")
    where = f"{model['precision']} on {model['device']} ({model['provider']}, {model['threads']} threads)"
    table.add_row("would run", f"{model['engine']} {model['engine_version']}, {where}")
    table.add_row("", model["reason"])
    for remark in (model["fallback"], model["unproven"]):
        if remark:
            table.add_row("", remark)
    if model["device_memory_bytes"]:
        memory = model["device_memory_bytes"]
        table.add_row("", f"{memory['used'] / 2**30:.1f} of {memory['total'] / 2**30:.1f} GiB used")
    table.add_row(
        "check",
        f"a {check['tile']} tile: {1000 * check['chosen']['seconds']:.0f} ms, {check['times_as_fast']:.2f} times as "
        f"fast as {check['cpu']['precision']} in {check['cpu']['engine']} on the CPU; counts "
        f"{check['chosen']['count']:.2f}, there {check['cpu']['count']:.2f}",
    )


def _measured(parity: dict[str, float] | None) -> str:
    if parity is None:
        return "never compared with the reference"
    difference, speed = parity["count_difference"], parity["speed"]
    return f"counts within {difference:.2%} of the reference, {speed:.2f} times fp32's speed in onnxruntime"


def _table() -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    return table
