"""The command `uepnet`: parses, runs one subcommand, turns failures into one sentence and an exit code.

Each subcommand is a module in `uepnet.commands` with `configure(parser)` and `run(args) -> exit code`. Only the
one that is asked for is imported, so help stays instant however heavy a command is.

Exit codes: 0 done, 1 some items failed, 2 wrong usage or input, 130 interrupted.
"""

import argparse
import errno
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from uepnet import __version__

COMMANDS = {
    "count": "count people in images",
    "video": "count people in a video, a folder of frames or a live stream",
    "plot": "draw counts over time",
    "serve": "run the HTTP service and its web page",
    "watch": "send the frames of all cameras in a camera file to a server",
    "history": "export the counts that the service has kept",
    "doctor": "show what is installed and what would run",
    "data": "check a data set",
    "prelabel": "propose points for a labelling tool, to be corrected by hand",
    "suggest": "find the pictures whose labels would teach the model most",
    "partition": "compute count intervals and proxies from annotated data",
    "train": "train a network on annotated data",
    "finetune": "train the bundled model further on pictures of your own camera",
    "compare": "compare training runs: settings, learning curves, errors",
    "evaluate": "measure a model's error on annotated data",
    "analyse": "the paper's tables and figures, from your data",
    "reproduce": "train a table of the paper anew, at an equal budget per row",
    "import": "turn the published checkpoint of the paper's authors into a run",
    "export": "turn a training run into a model directory (ONNX)",
    "bench": "measure speed on this machine",
}

EXAMPLES = """examples:
  uepnet count crowd.jpg                      count one picture with the bundled model
  uepnet count photos/ --csv counts.csv       a whole folder
  uepnet serve                                the service and its page on http://127.0.0.1:8000
  uepnet video station.mp4 --fps 1 --plot counts.png
  uepnet finetune --dataset csv --root my-camera --out runs/gate

`uepnet COMMAND --help` explains a command, with examples."""


# Arguments that name files without saying so by their type: shells complete them.
FILE_ARGUMENTS = ("paths", "source", "root", "out", "model", "models_dir", "init", "empty", "degraded")


class PrintCompletion(argparse.Action):
    """Print the shell's completion script and leave, as --version does."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> NoReturn:
        try:
            import shtab
        except ModuleNotFoundError:
            parser.error("completion needs shtab: pip install shtab")
        whole = build_parser()
        for action in _actions(whole):
            if action.type is Path or action.dest in FILE_ARGUMENTS:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
        print(shtab.complete(whole, shell=str(values)))
        parser.exit()


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """All arguments of a parser and of its subcommands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The whole parser; with `only`, the other subcommands stay empty shells that cost no import."""
    parser = argparse.ArgumentParser(
        prog="uepnet",
        description="Count people in crowds: images, video, a service, and training on your own cameras.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"uepnet {__version__}")
    parser.add_argument(
        "--print-completion",
        action=PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help='completion for your shell: eval "$(uepnet --print-completion bash)"',
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, summary in COMMANDS.items():
        sub = subparsers.add_parser(
            name, help=summary, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=True
        )
        if only in (None, name):
            try:
                import_module(f"uepnet.commands.{name}").configure(sub)
            except ModuleNotFoundError:
                if only == name:
                    raise  # completion, though, does without what is not installed
    return parser


def main(argv: list[str] | None = None) -> int:
    from uepnet.commands.shared.terminal import complain, tolerate_any_text
    from uepnet.model.errors import UepnetError

    _occupy_closed_streams()
    tolerate_any_text()
    arguments = sys.argv[1:] if argv is None else argv
    command = next((word for word in arguments if not word.startswith("-")), "")
    try:
        args = build_parser(only=command).parse_args(arguments)
        code = int(import_module(f"uepnet.commands.{args.command}").run(args))
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except UepnetError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()  # the reader (`head`, say) has seen enough
        return 0
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        _discard_output()
        complain(f"The output cannot be written: {error.strerror}.")
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("uepnet"):
            raise
        complain(f"{command} needs {error.name}: {_extra_for(error.name)}.")
        return 2


def _occupy_closed_streams() -> None:
    """Where a caller closed a standard stream, the next file that is opened would take its place, and its text."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY)  # the lowest free number; writing to it fails


def _discard_output() -> None:
    """Keep the interpreter from complaining while it flushes what nobody takes."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _extra_for(module: str) -> str:
    extras = {
        "onnxruntime": "cpu",
        "torch": "train",
        "torchvision": "train",
        "scipy": "train",
        "safetensors": "train",
        "onnx": "train",
        "yaml": "train",
        "matplotlib": "video",
        "av": "video",
        "fastapi": "serve",
        "uvicorn": "serve",
        "prometheus_client": "serve",
        "pydantic_settings": "serve",
        "sqlalchemy": "serve",
        "paho": "serve",
        "psycopg": "postgres",
        "ray": "deploy",
    }
    extra = extras.get(module.partition(".")[0])
    return f"pip install 'uepnet[{extra}]'" if extra else f"install the package that has {module}"
