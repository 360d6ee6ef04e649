"""The whole training story, from a configuration to weights and an artifact; it resumes exactly.

A run is a folder: config.json (what was asked for), artifact.json (intervals and all that inference needs),
weights.safetensors, checkpoint.pt (to go on), metrics.jsonl and tensorboard/ (to look at).
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from uepnet.model.artifact import Artifact
from uepnet.model.errors import ModelError
from uepnet.model.network import UEPNet, build
from uepnet.training import dataset, distributed
from uepnet.training.augment import Augment
from uepnet.training.batches import Positions, Tiles, loader
from uepnet.training.config import Config
from uepnet.training.evaluate import count_errors, torch_runner
from uepnet.training.graph import normalise
from uepnet.training.prepare import claim, empties, initialise, make_artifact, parts_of, repeated, samples_of

SPREAD = 0.22  # how far a block's count is off where it holds many people, as a share of them
SHAPE = SPREAD**-2  # of the negative binomial
BLIND = 2  # cells, beside a cut through the image
FEWEST = 0.05  # people, added to every block: an empty one has a mean, too
Tensors = tuple[Tensor, ...] | list[Tensor]


@dataclass
class Progress:
    """What the loop tells whoever watches."""

    step: int
    steps: int
    values: dict[str, float]
    kind: str = "train"


@dataclass
class Schedule:
    """The learning rate, a function of the step (cosine) or of the training loss so far (plateau)."""

    config: Config
    rate: float = 0.0
    window: int = 1000  # steps whose mean loss is compared
    patience: int = 3  # windows without improvement before the rate falls
    total: float = 0.0
    seen: int = 0
    best: float = math.inf
    waited: int = 0

    def __post_init__(self) -> None:
        self.rate = self.rate or self.config.lr

    def at(self, step: int) -> float:
        config = self.config
        warm = min(1.0, (step + 1) / config.warm_up) if config.warm_up else 1.0
        if config.schedule == "plateau":
            return self.rate * warm
        done = max(0, step - config.warm_up) / max(1, config.steps - config.warm_up)
        return config.lr * warm * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))

    def saw(self, loss: float) -> None:
        self.total, self.seen = self.total + loss, self.seen + 1
        if self.seen < self.window:
            return
        mean, self.total, self.seen = self.total / self.seen, 0.0, 0
        self.waited = 0 if mean < self.best * 0.999 else self.waited + 1
        self.best = min(self.best, mean)
        if self.waited >= self.patience:
            self.rate, self.waited = self.rate / 10, 0

    @property
    def over(self) -> bool:
        return self.config.schedule == "plateau" and self.rate < self.config.lr * 2e-4

    def state(self) -> dict[str, float]:
        return {key: getattr(self, key) for key in ("rate", "total", "seen", "best", "waited")}


class Losses(nn.Module):
    """Logits and true local counts -> the loss: cross-entropy of every head, and the error of expected counts."""

    def __init__(self, artifact: Artifact, count_loss: float) -> None:
        super().__init__()
        self.count_loss = count_loss
        self.regression = artifact.decoding == "regression"
        for index, head in enumerate(artifact.heads):
            self.register_buffer(f"borders_{index}", torch.tensor(head.borders, dtype=torch.float32))
            self.register_buffer(f"proxies_{index}", torch.tensor(head.proxies, dtype=torch.float32))

    def forward(self, logits: list[Tensor], counts: Tensor) -> dict[str, Tensor]:
        """logits: a [n, classes, rows, columns] a head; counts: [n, rows, columns], NaN where nothing is judged."""
        judged = counts.isfinite()
        if self.regression:
            return {"loss": functional.mse_loss(logits[0][:, 0][judged], counts[judged])}
        counts = counts.nan_to_num()
        entropy = torch.zeros((), device=counts.device)
        expected = torch.zeros_like(counts)
        for index, scores in enumerate(logits):
            classes = torch.bucketize(counts, getattr(self, f"borders_{index}"), right=True)
            entropy = entropy + functional.cross_entropy(scores, classes.masked_fill(~judged, -100))
            proxies = getattr(self, f"proxies_{index}")
            expected = expected + torch.einsum("nchw,c->nhw", scores.softmax(1), proxies) / len(logits)
        losses = {"loss": entropy, "entropy": entropy.detach()}
        if self.count_loss:
            error = self._count_error(expected * judged, counts)
            losses |= {"loss": entropy + self.count_loss * error, "count": error.detach()}
        return losses

    def _count_error(self, expected: Tensor, counts: Tensor) -> Tensor:
        """How unlikely the people in blocks of 4x4 and 16x16 cells are: the negative binomial's deviance.

        It is least at the mean. An absolute error is least at the median, and the median of a block that mostly holds
        nobody is nobody: a network trained on it counts too low where people stand apart. The variance is that of
        people who come one by one, and SPREAD of the count on top.
        """
        error = torch.zeros((), device=counts.device)
        for block in (4, 16):
            mean, seen = (
                functional.avg_pool2d(people[:, None], block, ceil_mode=True, divisor_override=1) + FEWEST
                for people in (expected, counts)
            )
            odds = torch.log1p(mean / SHAPE) - torch.log1p(seen / SHAPE)
            error = error + 2 * (torch.xlogy(seen, seen / mean) + (seen + SHAPE) * odds).mean()
        return error


@dataclass
class Run:
    """A run in the making: what the loop changes from step to step."""

    folder: Path
    config: Config
    artifact: Artifact
    network: UEPNet
    optimiser: torch.optim.Optimizer
    schedule: Schedule
    average: AveragedModel | None = None  # the mean of the last steps' weights: what is kept, where there is one
    step: int = 0
    best: float = math.inf
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def result(self) -> nn.Module:
        """The network that is validated and kept."""
        return self.average.module if self.average is not None else self.network

    def save(self) -> None:
        """Write checkpoint.pt; a crash in the middle leaves the old one."""
        state = {
            "layout": self.artifact.layout.model_dump_json(),
            "step": self.step,
            "best": self.best,
            "seconds": self.seconds + time.monotonic() - self.started,
            "network": self.network.state_dict(),
            "average": self.average.state_dict() if self.average is not None else None,
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state(),
            "rng": torch.get_rng_state(),
        }
        partial = self.folder / "checkpoint.partial"
        torch.save(state, partial)
        partial.replace(self.folder / "checkpoint.pt")

    def restore(self) -> None:
        path = self.folder / "checkpoint.pt"
        if not path.exists():
            return
        try:
            state = torch.load(path, map_location="cpu", weights_only=True)
        except (RuntimeError, EOFError, OSError, ValueError, KeyError, AttributeError) as error:
            raise ModelError(f"{path} is not a readable checkpoint: {type(error).__name__}.") from None
        if state["layout"] != self.artifact.layout.model_dump_json():
            raise ModelError(f"{path} belongs to another network than config.json describes.")
        self.network.load_state_dict(state["network"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule = Schedule(self.config, **state["schedule"])
        self.step, self.best, self.seconds = state["step"], state["best"], state["seconds"]
        torch.set_rng_state(state["rng"])

    def export_weights(self) -> None:
        partial = self.folder / "weights.partial"
        save_file({key: value.contiguous() for key, value in self.result.state_dict().items()}, partial)
        partial.replace(self.folder / "weights.safetensors")


def train(
    folder: Path,
    config: Config,
    resume: bool = False,
    watch: Callable[[Progress], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Artifact:
    """Run to the last step, or until `stop` says so; the checkpoint is current when it returns."""
    with distributed.processes(config.device) as (rank, world, device):
        if config.threads:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        parts, held = parts_of(config, "fit"), samples_of(config, "val")
        empties(config.empty, held_back=False)  # a wrong folder is found before a run is made
        if rank == 0 and not resume:
            claim(folder)
        artifact = (
            Artifact.load(folder) if resume else make_artifact(folder.resolve().name, config, repeated(parts, ()))
        )
        network = build(artifact.layout)
        if not resume or not (folder / "checkpoint.pt").exists():
            initialise(network, config.encoder, config.init)
        if rank == 0 and not resume:
            artifact.save(folder)
            config.write(folder)
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        average = None
        if config.average:
            # Norms' statistics are averaged, too: those of the last step do not belong to the mean of the weights.
            average = AveragedModel(network, multi_avg_fn=_running_mean(config.average), use_buffers=True)
        run = Run(folder, config, artifact, network, _optimiser(network, config), Schedule(config), average)
        if resume:
            run.restore()
        _loop(run, repeated(parts, config.repeat), held, device, rank, world, watch, stop)
        return artifact


def _loop(
    run: Run,
    samples: list[dataset.Sample],
    held: list[dataset.Sample],
    device: torch.device,
    rank: int,
    world: int,
    watch: Callable[[Progress], None],
    stop: Callable[[], bool],
) -> None:
    config = run.config
    stream = loader(_tiles(run, samples), Positions(config.batch, run.step, config.steps, rank, world), config.workers)
    learn = _learner(run, device)
    saved = time.monotonic()
    with distributed.Log(run.folder, run.step, enabled=rank == 0) as log:
        for tiles, counts in stream:
            values = learn(tiles, counts)
            run.schedule.saw(values["loss"])
            run.step += 1
            log.write(Progress(run.step, config.steps, values), every=10)
            watch(Progress(run.step, config.steps, values))
            last = run.step == config.steps or run.schedule.over
            if last or run.step % config.validate_every == 0:
                progress = _validate(run, held, device, rank, world)
                log.write(progress)
                watch(progress)
            stopping = distributed.agree(stop(), device)
            if rank == 0 and (last or stopping or time.monotonic() - saved > config.checkpoint_seconds):
                log.flush()
                run.save()
                saved = time.monotonic()
            if last or stopping:
                break


def _tiles(run: Run, samples: list[dataset.Sample]) -> Tiles:
    config = run.config
    return Tiles(
        samples=samples,
        augment=Augment(config.crop, scale=config.scale, mirror=config.mirror, blind=BLIND, jitter=config.jitter),
        cell=config.cell,
        padding=run.artifact.normalisation.padding,
        seed=config.seed,
        kernel=config.kernel_override,
        empties=empties(config.empty, held_back=False),
        empty_share=config.empty_share,
    )


def _running_mean(decay: float) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """A mean that forgets what lies far back; at first faster, so that a short run's is not of where it began."""

    def update(mean: Tensors, latest: Tensors, seen: Tensor | int) -> None:
        kept = min(decay, (1 + float(seen)) / (10 + float(seen)))
        get_ema_multi_avg_fn(kept)(mean, latest, seen)  # type: ignore[no-untyped-call]

    return update


def _learner(run: Run, device: torch.device) -> Callable[[Tensor, Tensor], dict[str, float]]:
    """One step of the optimiser: tiles and counts in, losses (the mean over all processes) out."""
    config, normalisation = run.config, run.artifact.normalisation
    losses = Losses(run.artifact, config.count_loss).to(device)
    mean, std = torch.tensor(normalisation.mean, device=device), torch.tensor(normalisation.std, device=device)
    wrapped = distributed.wrap(run.network, device)
    forward = torch.compile(wrapped) if config.compile else wrapped
    autocast = distributed.autocast(device, config.bfloat16)

    def learn(tiles: Tensor, counts: Tensor) -> dict[str, float]:
        _set_mode(run.network, config)
        rate = run.schedule.at(run.step)
        for group in run.optimiser.param_groups:
            group["lr"] = rate * group.get("share", 1.0)
        with autocast:
            logits = forward(normalise(tiles.to(device, non_blocking=True), mean, std))
        parts = losses([scores.float() for scores in logits], counts.to(device, non_blocking=True))
        run.optimiser.zero_grad(set_to_none=True)
        parts["loss"].backward()
        nn.utils.clip_grad_norm_(run.network.parameters(), config.clip)
        run.optimiser.step()
        if run.average is not None:
            run.average.update_parameters(run.network)
        values = distributed.mean({name: float(value.detach()) for name, value in parts.items()}, device)
        if not math.isfinite(values["loss"]):
            raise ModelError(f"The loss is no longer finite at step {run.step}: try a smaller --lr.")
        return values | {"lr": rate}

    return learn


def _validate(run: Run, held: list[dataset.Sample], device: torch.device, rank: int, world: int) -> Progress:
    """MAE and RMSE over the validation split, through the path that is served; then keep the weights."""
    chosen = held[:: max(1, len(held) // run.config.validate_images)] if run.config.validate_images else held
    runner = torch_runner(run.result.eval(), run.artifact, device)
    errors = count_errors(chosen[rank::world], run.artifact, runner)
    total, square, images = distributed.total([sum(map(abs, errors)), sum(e * e for e in errors), len(errors)], device)
    mae = total / max(1.0, images)
    values = {"val_mae": mae, "val_rmse": math.sqrt(square / max(1.0, images))}
    if rank == 0 and (run.config.keep == "last" or mae < run.best):
        run.export_weights()
        metrics = run.artifact.metrics | values | {"step": float(run.step)}
        run.artifact = run.artifact.model_copy(update={"metrics": metrics})
        run.artifact.save(run.folder)
    run.best = min(run.best, mae)
    return Progress(run.step, run.config.steps, values, kind="val")


def _set_mode(network: UEPNet, config: Config) -> None:
    network.train()
    for part in network.encoder.early(config.freeze):
        part.eval()  # batch norm keeps its ImageNet statistics there
    if config.fixed_norms:
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()


def _optimiser(network: UEPNet, config: Config) -> torch.optim.Optimizer:
    for part in network.encoder.early(config.freeze):
        part.requires_grad_(False)
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in network.named_parameters():
        if parameter.requires_grad:
            share = config.encoder_rate if name.startswith("encoder.") else 1.0
            decay = config.weight_decay if parameter.ndim > 1 else 0.0  # none on biases and norms
            groups.setdefault((share, decay), []).append(parameter)
    settings = [{"params": group, "weight_decay": decay, "share": share} for (share, decay), group in groups.items()]
    if config.optimiser == "sgd":
        return torch.optim.SGD(settings, lr=config.lr, momentum=0.9)
    return torch.optim.AdamW(settings, lr=config.lr)
