"""The settings of fine-tuning: a gentle recipe, and what of it depends on the pictures and on the time."""

import math
from collections.abc import Sequence

from uepnet.model.artifact import Artifact
from uepnet.training.config import STAGES, Config
from uepnet.training.evaluate import Result

EMPTY_SHARE, CROWD_SHARE, REHEARSED_SHARE = 0.15, 0.05, 0.2  # of the tiles
FROZEN = 3  # stages of the encoder
NARROWER, WIDER = 0.8, 1.25  # the random scale of tiles, as factors on the scale of counting
USUAL_STEPS = 200  # the recipe's learning rate is for so many
SLOWEST, FASTEST = 0.67, 2.0  # factors on it for more and for fewer steps
RARELY = 0.1  # a scale that counts a smaller share of the pictures is not trained at
RECIPE = {
    "train_on": "all",
    "fixed_norms": True,
    "encoder_rate": 0.1,
    "lr": 3e-4,
    "weight_decay": 1e-2,
    "crop": 576,
    "batch": 2,
    "jitter": 0.3,
    "empty_share": EMPTY_SHARE,
    "keep": "last",
}


def recipe(artifact: Artifact, data: tuple[tuple[str, str], ...], **chosen: object) -> Config:
    """The settings of every copy; what concerns intervals, kernel and scale is the old model's own."""
    settings = artifact.training.get("settings", {})
    values: dict[str, object] = {
        "data": data,
        "encoder": artifact.layout.encoder,
        "decoder": artifact.layout.decoder,
        "width": artifact.layout.width,
        "cell": artifact.cell,
        "target": "regression" if artifact.decoding == "regression" else "classes",
        "kernel": str(settings.get("kernel", "")),
        "freeze": min(FROZEN, STAGES[artifact.layout.encoder] - 1),
        "input_scale": artifact.scale,
    }
    return Config.model_validate(values | RECIPE | chosen)


def usual_steps(pictures: int) -> int:
    """Steps of a copy that has time enough: 140 for 20 pictures, 199 for 60, 315 for 200.

    With half of them, at a lower rate, the counts of Mall became too high before they became right.
    """
    return 60 + round(18 * math.sqrt(pictures))


def faster(steps: int) -> float:
    """The factor on the learning rate: where the time allows fewer steps, they are larger ones.

    No more than twice as large: at three times the rate, empty photographs got people.
    """
    return min(FASTEST, max(SLOWEST, USUAL_STEPS / steps))


def scale_range(results: Sequence[Result]) -> tuple[float, float]:
    """The random scale of training tiles: around the scales at which the model counts pictures of this camera."""
    shares: dict[float, float] = {}
    for result in results:
        for use in result.count.scales:
            shares[round(use.scale, 4)] = shares.get(round(use.scale, 4), 0.0) + use.share / len(results)
    used = [scale for scale, share in shares.items() if share >= RARELY] or list(shares)
    return round(NARROWER * min(used), 4), round(WIDER * max(used), 4)
