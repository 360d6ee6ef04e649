"""Reads a Dockerfile, as far as ours goes: stages, and their instructions with continued lines joined."""

import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)  # (RUN, "pip install ...")

    def all(self, word: str) -> list[str]:
        return [rest for found, rest in self.instructions if found == word]


def read_stages(path: Path) -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    stages: dict[str, Stage] = {}
    stage = Stage("", "")
    for line in filter(str.strip, text.splitlines()):
        word, rest = line.strip().split(maxsplit=1)
        if word == "FROM":
            base, _, name = rest.split()
            stage = stages[name] = Stage(name, base)
        else:
            stage.instructions.append((word, rest))
    return stages


def lineage(stages: dict[str, Stage], target: str) -> list[Stage]:
    """The target and what it is built upon, the oldest first."""
    chain = [stages[target]]
    while chain[0].base in stages:
        chain.insert(0, stages[chain[0].base])
    return chain
