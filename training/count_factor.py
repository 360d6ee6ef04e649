"""One factor on all counts of a model, so that they add up to the labels: measured, and built into its intervals."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from uepnet.model.artifact import Artifact
from uepnet.training.evaluate import Result

FACTORS = (0.67, 1.5)  # a model that needs a larger or smaller factor has another problem


def factor_of(results: Sequence[Result]) -> float:
    """The factor that makes the sum of the counts equal to the number of labels."""
    counted, true = sum(result.counted for result in results), sum(result.truth for result in results)
    return float(np.clip(true / counted, *FACTORS)) if counted > 0 and true > 0 else 1.0


def corrected(results: Sequence[Result], parts: Sequence[int]) -> list[Result]:
    """The counts of consecutive parts, of these lengths, each times the factor that fits the other parts."""
    made, end = [], 0
    for length in parts:
        part, rest = results[end : end + length], [*results[:end], *results[end + length :]]
        factor = factor_of(rest)
        made += [rescaled(result, factor) for result in part]
        end += length
    return made


def rescaled(result: Result, factor: float) -> Result:
    return replace(result, counted=factor * result.counted)


def rescaled_heads(artifact: Artifact, factor: float) -> Artifact:
    """The model with all counts times the factor: borders and proxies move together, so that classes keep their order.

    The class of the background stays: its border says from which count on a cell is not empty.
    """
    heads = tuple(
        head.model_copy(
            update={
                "borders": (head.borders[0], *(border * factor for border in head.borders[1:])),
                "proxies": tuple(proxy * factor for proxy in head.proxies),
            }
        )
        for head in artifact.heads
    )
    values = artifact.model_dump() | {"heads": [head.model_dump() for head in heads], "t_max": artifact.t_max * factor}
    return Artifact.model_validate(values)
