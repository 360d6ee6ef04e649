"""Fine-tune a model on pictures of one's own camera: gently, in minutes, and only if it becomes better.

The pictures are cut into runs of consecutive ones (`training.folds`). For each run a copy of the model is trained on
all the others and counts this one: errors on pictures that a copy has not seen give the verdict and the range. What
the old model was trained on it cannot be measured with: in a second round the new pictures alone are cut into runs. The
model that is kept is the mean of the copies' weights: they lie close together, and their mean has learnt from every
picture without another training. The weights halfway between this mean and the old ones, and the old weights
themselves, are tried, too, each with and without the factor on its counts that fits the held-back pictures.

What the model knew is kept: its intervals, kernel, scale and decoding, the statistics of its norms, the first stages
of its encoder. A fifth of the tiles are drawn: empty scenes and crowds. Another fifth are strange pictures, labelled
with what the old model counts in them (`training.data.rehearsal`). A new model that counts people in empty scenes is
not kept.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from uepnet.model.artifact import Artifact
from uepnet.model.count import count_image
from uepnet.model.errors import DataError, ModelError
from uepnet.model.network import UEPNet, build
from uepnet.training import conformal, familiarity
from uepnet.training.config import Config
from uepnet.training.count_factor import corrected, factor_of, rescaled_heads
from uepnet.training.data.batches import Positions, loader
from uepnet.training.data.dataset import Sample, total_people
from uepnet.training.data.rehearsal import Labelled, rehearsal
from uepnet.training.data.seen import digest, seen_by
from uepnet.training.data.synthetic import KINDS
from uepnet.training.evaluate import Result, evaluate, torch_runner
from uepnet.training.finetune_recipe import CROWD_SHARE, REHEARSED_SHARE, faster, scale_range, usual_steps
from uepnet.training.folds import folds, mean_of, spread
from uepnet.training.mixed_weights import State, blend, mean_weights
from uepnet.training.pace import Pace
from uepnet.training.run_state import RunState
from uepnet.training.schedule import Schedule
from uepnet.training.train import learner, make_optimiser, tiles_of
from uepnet.training.verdict import Verdict

FEWEST = 10  # pictures
FOLDS = 4
MEASURED = (20, 120)  # pictures that are counted before and after: at least, at most
LEAST_STEPS = 12
REHEARSED, REHEARSED_SEED = 40, 7_040  # tiles for each copy
STRENGTHS = (1.0, 0.5, 0.0)  # how far from the old weights (0) to the mean of the copies (1)
STRANGER = 0.9  # the threshold of familiarity, as a share of the lowest familiarity of the pictures
CLEARLY = 0.98  # another trial than the copies as they are is chosen if its error is below this share of theirs
EMPTY_SIDE, EMPTY_SEED, EMPTY_MORE = 320, 40_510, 0.3  # drawn scenes that must stay empty: pixels, seed, people


@dataclass(frozen=True)
class Start:
    """The model that is fine-tuned: its artifact, its weights, and the model directory that serves it."""

    artifact: Artifact
    weights: State
    model: Path

    def network(self, weights: State | None = None) -> UEPNet:
        network = build(self.artifact.layout)
        familiarity.attach(network, self.artifact)
        try:
            network.load_state_dict(dict(weights or self.weights))
        except RuntimeError:
            raise ModelError(f"The weights do not fit the model {self.artifact.version}.") from None
        return network.to(memory_format=torch.channels_last)


def finetune(start: Start, samples: Sequence[Sample], config: Config, pace: Pace, steps: int = 0) -> Verdict:
    """Train, measure and decide. `steps` of each copy; 0 for as many as the number of pictures and the time suggest."""
    if len(samples) < FEWEST:
        raise DataError(f"Fine-tuning needs at least {FEWEST} labelled pictures, not {len(samples)}.")
    if not total_people(samples):
        raise DataError(
            f"None of the {len(samples)} pictures has a person marked in it: fine-tuning needs some that have."
        )
    torch.manual_seed(config.seed)
    device = torch.device(config.device)
    counter = _Counter(start, device, pace)
    pool, known = unseen(start.artifact, samples)
    parts = min(FOLDS, len(pool) // 3)
    cut = [{pool[place] for place in part.tolist()} for part in folds(len(pool), parts)]
    measured = _choose_measured(samples, pool, counter, pace)
    runs = [[samples[index] for index in measured if index in part] for part in cut]
    pace.plan("picture", 3 * len(measured))
    before = counter.results([samples[index] for index in measured], start.weights, "counting with the old model")
    held = _HeldBack(runs, known, before, counter.empty(start.weights))
    config = config.changed(scale=scale_range(before))
    config = _quicker(start, samples, config, pace, device)
    seen = [[sample for index, sample in enumerate(samples) if index not in part] for part in cut]
    rehearsed = [counter.rehearsal(others, config.crop, number) for number, others in enumerate(seen)]
    config = config.changed(steps=steps or pace.steps(usual_steps(len(samples)), parts, LEAST_STEPS))
    setups = []
    copies, log = [], []
    for number in range(parts):
        setups.append(_in_time(config, pace, parts - number, steps))
        setup = setups[-1].changed(seed=config.seed + number)
        text = f"training copy {number + 1} of {parts}"
        weights, values = _train_copy(start, seen[number], setup, pace, device, text, rehearsed[number])
        copies.append(weights)
        log += [entry | {"copy": float(number + 1)} for entry in values]
    return _decide(start, held, _best_trial(start, copies, held, counter), setups[0], log)


def unseen(artifact: Artifact, samples: Sequence[Sample]) -> tuple[list[int], int]:
    """The pictures that the model can be measured with, by their indices: those that it was not trained on.

    Where they are too few it is all of them, and how many of them it knows.
    """
    seen = seen_by(artifact)
    new = [index for index, sample in enumerate(samples) if not seen or digest(sample.image) not in seen]
    return (new, 0) if len(new) >= FEWEST else (list(range(len(samples))), len(samples) - len(new))


@dataclass(frozen=True)
class _HeldBack:
    """The pictures that decide, and what the old model says of them."""

    runs: Sequence[Sequence[Sample]]  # of consecutive pictures; the copy of the same place has not seen them
    known: int  # of them, pictures that the old model was trained on
    before: Sequence[Result]
    empty: float  # people in drawn empty scenes

    @property
    def lengths(self) -> list[int]:
        return [len(run) for run in self.runs]


@dataclass(frozen=True)
class _Trial:
    """The copies at one strength: their mean, its count of empty scenes, and the copies' own counts of held-back
    pictures."""

    strength: float
    factor: float
    weights: State
    empty: float
    results: Sequence[Result]  # with the factor that fits the pictures of the other folds

    @property
    def mae(self) -> float:
        return float(np.mean([abs(result.error) for result in self.results]))


def _best_trial(start: Start, copies: Sequence[State], held: _HeldBack, counter: "_Counter") -> _Trial:
    """The first of the trials that leave empty scenes empty, or another whose error is clearly smaller."""
    trials = []
    for strength in STRENGTHS:
        weights = blend(start.weights, mean_weights(copies), strength) if strength else start.weights
        results = list(held.before) if not strength else []
        for copy, run in zip(copies, held.runs, strict=True) if strength else ():
            text = f"counting held-back pictures, strength {strength:g}"
            results += counter.results(run, blend(start.weights, copy, strength), text)
        people = counter.empty(weights) if strength else held.empty
        if strength or not start.artifact.heads:
            trials.append(_Trial(strength, 1.0, weights, people, results))
        if start.artifact.heads:  # a regression network has no proxies that a factor could be built into
            factor = factor_of(results)
            trials.append(_Trial(strength, factor, weights, factor * people, corrected(results, held.lengths)))
    first, *others = [trial for trial in trials if trial.empty <= held.empty + EMPTY_MORE] or trials[-1:]
    clearly = [trial for trial in others if trial.mae < CLEARLY * first.mae]
    return min(clearly, key=lambda trial: trial.mae, default=first)


def _decide(start: Start, held: _HeldBack, trial: _Trial, config: Config, log: Sequence[dict[str, float]]) -> Verdict:
    """The new model is kept if its error is smaller by more than the uncertainty, and empty scenes stay empty.

    Pictures that the old model knows would make a range too narrow: then its own range stays, where it has one.
    """
    before = held.before
    gain = mean_of([abs(old.error) - abs(new.error) for old, new in zip(before, trial.results, strict=True)])
    kept = "old"
    if trial.empty > held.empty + EMPTY_MORE:
        reason = f"it counts {trial.empty:.1f} people in drawn empty scenes, the old model {held.empty:.1f}"
    elif gain.value <= (1 - CLEARLY) * float(np.mean([abs(result.error) for result in before])):
        reason = "its error on held-back pictures is not clearly smaller"
    elif gain.value <= gain.error:
        reason = "its smaller error on held-back pictures may be chance"
    else:
        kept, reason = "new", "its error on held-back pictures is smaller"
    results = trial.results if kept == "new" else before
    counts, truths = [result.counted for result in results], [float(result.truth) for result in results]
    blocks = np.split(np.arange(len(results)), np.cumsum(held.lengths)[:-1])
    artifact = start.artifact if kept == "old" else rescaled_heads(start.artifact, trial.factor)
    if not held.known or artifact.calibration is None:
        artifact = artifact.model_copy(update={"calibration": conformal.fit(counts, truths)})
    return Verdict(
        artifact=knowing(artifact, results),
        weights=trial.weights if kept == "new" else start.weights,
        kept=kept,
        reason=reason,
        before=before,
        after=trial.results,
        gain=gain,
        empty=(held.empty, trial.empty),
        samples=[sample for run in held.runs for sample in run],
        known=held.known,
        coverage=conformal.coverage(counts, truths, [block.tolist() for block in blocks]),
        config=config,
        strength=trial.strength,
        factor=trial.factor,
        log=log,
    )


def knowing(artifact: Artifact, results: Sequence[Result]) -> Artifact:
    """The model with a threshold below the pictures' familiarities, so that it does not call this camera unfamiliar."""
    known = [result.count.familiarity for result in results if result.count.familiarity is not None]
    if artifact.familiarity is None or not known:
        return artifact
    threshold = min(artifact.familiarity.threshold, STRANGER * min(known))
    fitted = artifact.familiarity.model_copy(update={"threshold": threshold})
    return artifact.model_copy(update={"familiarity": fitted})


class _Counter:
    """Counts pictures with given weights, through the path that is served."""

    def __init__(self, start: Start, device: torch.device, pace: Pace) -> None:
        self.start, self.device, self.pace = start, device, pace

    def results(self, samples: Sequence[Sample], weights: State, text: str) -> list[Result]:
        network = self.start.network(weights).to(self.device).eval()
        run = torch_runner(network, self.start.artifact, self.device)
        found: list[Result] = []
        for sample in samples:
            started = time.monotonic()
            found += evaluate([sample], self.start.artifact, run)
            self.pace.did("picture", time.monotonic() - started, text)
        return found

    def rehearsal(self, samples: Sequence[Sample], side: int, number: int) -> list[Labelled]:
        """Strange tiles for a copy, with what the old model counts in them."""
        self.pace.say("preparing")
        run = torch_runner(self.start.network().to(self.device).eval(), self.start.artifact, self.device)
        return rehearsal(samples, REHEARSED, side, REHEARSED_SEED + number, run)

    def empty(self, weights: State) -> float:
        """People counted in a drawn scene with nobody in it, on average."""
        run = torch_runner(self.start.network(weights).to(self.device).eval(), self.start.artifact, self.device)
        rng = np.random.default_rng(EMPTY_SEED)
        scenes = [np.asarray(make(rng, EMPTY_SIDE, EMPTY_SIDE)) for make in KINDS.values() for _ in range(2)]
        return float(np.mean([count_image(scene, self.start.artifact, run).count for scene in scenes]))


def _choose_measured(samples: Sequence[Sample], pool: Sequence[int], counter: _Counter, pace: Pace) -> list[int]:
    """Those of the pool that are counted before and after: all of a few, some of many."""
    probes = [samples[pool[place]] for place in spread(len(pool), 3)]
    counter.results(probes, counter.start.weights, "measuring this machine")
    return [pool[place] for place in spread(len(pool), pace.pictures(len(pool), 3, *MEASURED))]


def _quicker(start: Start, samples: Sequence[Sample], config: Config, pace: Pace, device: torch.device) -> Config:
    """Choose float32 or bfloat16, whichever is faster on this machine: not every CPU computes in bfloat16."""
    found: dict[str, float] = {}
    for precision in ("fp32", "bfloat16") if device.type == "cpu" else (config.precision,):
        setup = config.changed(steps=3, warm_up=1, precision=precision)
        quiet = Pace(pace.minutes)
        _train_copy(start, samples[:8], setup, quiet, device, "")
        found[precision] = quiet.cost["step"]
        pace.say("measuring this machine")
    best = min(found, key=lambda precision: found[precision])
    pace.cost["step"] = found[best]
    return config.changed(precision=best)


def _in_time(config: Config, pace: Pace, copies: int, steps: int) -> Config:
    """The settings of the next copy, of so many that are left: fewer steps if the machine has become slower."""
    chosen = steps or pace.steps(config.steps, copies, max(LEAST_STEPS, config.steps // 2))
    pace.plan("step", chosen * copies)
    return config.changed(steps=chosen, warm_up=max(1, chosen // 6), lr=config.lr * faster(chosen))


def _train_copy(
    start: Start,
    samples: Sequence[Sample],
    config: Config,
    pace: Pace,
    device: torch.device,
    text: str,
    rehearsed: Sequence[Labelled] = (),
) -> tuple[State, list[dict[str, float]]]:
    """The weights of a copy trained on the samples, and its losses."""
    network = start.network().to(device)
    run = RunState(Path(), config, start.artifact, network, make_optimiser(network, config), Schedule(config))
    learn = learner(run, device)
    tiles = replace(
        tiles_of(run, list(samples)),
        crowd_share=CROWD_SHARE,
        rehearsed=rehearsed,
        rehearsed_share=REHEARSED_SHARE,
    )
    log: list[dict[str, float]] = []
    started = time.monotonic()
    for pixels, counts in loader(tiles, Positions(config.batch, 0, config.steps), config.workers):
        values = learn(pixels, counts)
        run.step += 1
        log.append({"step": float(run.step)} | values)
        pace.did("step", time.monotonic() - started, text)
        started = time.monotonic()
    return {name: value.detach().cpu().clone() for name, value in network.state_dict().items()}, log
