"""Every option of every command says what it takes: a help text, and choices or a named placeholder."""

import argparse
from collections.abc import Iterator

import pytest

from uepnet.cli import COMMANDS, build_parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from parsers(sub)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text_and_names_its_value(command: str) -> None:
    for parser in parsers(build_parser(only=command)):
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                continue
            name = f"{parser.prog} {'/'.join(action.option_strings) or action.dest}"
            assert action.help, f"{name} has no help text"
            takes_value = action.nargs != 0
            assert not takes_value or action.choices or action.metavar, f"{name} shows neither choices nor a unit"
