"""Which labels of an annotation file are people: the ones asked for, or those whose name says so, or the only one.

A label that is not counted is never dropped in silence: a note names it and how often it occurs.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from uepnet.model.errors import DataError

PEOPLE_WORDS = """
    person persons people pedestrian pedestrians head heads face faces human humans crowd-person visitor visitors
    passenger passengers man woman child
    kopf köpfe person personen mensch menschen fußgänger besucher leute gesicht
    tête têtes personne personnes piéton piétons visage gens
    cabeza cabezas persona personas peatón peatones gente rostro
    cabeça cabeças pessoa pessoas pedestre testa teste persone pedone pedoni
    hoofd hoofden persoon personen mensen głowa głowy osoba osoby ludzie hlava hlavy člověk lidé
    голова головы человек люди пешеход baş kafa insan kişi huvud huvuden människa person hode hoved
    人 人头 人頭 頭 头 行人 頭部 人物 사람 머리 رأس شخص ראש אדם
"""
PEOPLE = frozenset(PEOPLE_WORDS.split())
COUNTED = "counts the label {label}; left out: {others}; choose labels with --dataset {dataset}:LABEL"
SEVERAL = (
    "counts the labels {labels}; if some mark the same people twice, choose one of them with --dataset {dataset}:LABEL"
)


def choose(
    used: Mapping[str, int], wanted: frozenset[str], dataset: str, index: Path, declared: Iterable[str] = ()
) -> tuple[frozenset[str], tuple[str, ...]]:
    """The labels to count, of those that are used (label -> how often), and a note where that leaves a question.

    A single label counts whatever its name, unless the file declares another one that means people.
    """
    if wanted:
        missing = sorted(label for label in wanted if folded(label) not in map(folded, used))
        if missing:
            raise DataError(f"{index} has no label {missing[0]!r}; it has {_listed(used) or 'none'}.")
        asked = set(map(folded, wanted))
        return frozenset(label for label in used if folded(label) in asked), ()
    people = frozenset(label for label in used if folded(label) in PEOPLE)
    single = len(used) <= 1 and not any(folded(label) in PEOPLE for label in declared)
    if single or people == frozenset(used):
        several = (SEVERAL.format(labels=_listed(used), dataset=dataset),) if len(used) > 1 else ()
        return frozenset(used), several
    if not people:
        raise DataError(
            f"{index} uses the labels {_listed(used)}, and none is known to mean people: choose with "
            f"--dataset {dataset}:LABEL, or several as {dataset}:LABEL+LABEL."
        )
    others = _listed({label: number for label, number in used.items() if label not in people})
    kept = _listed({label: number for label, number in used.items() if label in people})
    return people, (COUNTED.format(label=kept, others=others, dataset=dataset),)


def count(labels: Iterable[str]) -> Mapping[str, int]:
    return Counter(labels)


def folded(label: str) -> str:
    return unicodedata.normalize("NFC", label).strip().casefold()


def _listed(used: Mapping[str, int]) -> str:
    return ", ".join(f"{label or 'without a name'} ({number:,})" for label, number in sorted(used.items()))
