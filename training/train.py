"""Training, from a configuration to weights and an artifact. A run that was stopped resumes to the same weights.

A run is a folder: config.json (the settings), artifact.json (intervals and everything else that inference needs),
weights.safetensors, checkpoint.pt (for resuming), metrics.jsonl and tensorboard/ (the course of the training).
"""

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from uepnet.model.artifact import Artifact
from uepnet.model.errors import ModelError
from uepnet.model.network import UEPNet, build
from uepnet.training import distributed
from uepnet.training.config import Config
from uepnet.training.data import dataset
from uepnet.training.data.augment import Augment
from uepnet.training.data.batches import Positions, Tiles, loader
from uepnet.training.data.dataset_check import refuse_broken
from uepnet.training.evaluate import count_errors, torch_runner
from uepnet.training.inference_graph import normalise
from uepnet.training.losses import TrainingLoss
from uepnet.training.metrics_log import MetricsLog, StepMetrics
from uepnet.training.prepare import empties, held_back, make_artifact, repeated, training_parts
from uepnet.training.run_folder import CHECKPOINT, claimed, locked
from uepnet.training.run_state import RunState
from uepnet.training.schedule import Schedule
from uepnet.training.starting_weights import initialise

Tensors = tuple[Tensor, ...] | list[Tensor]


def train(
    folder: Path,
    config: Config,
    resume: bool = False,
    watch: Callable[[StepMetrics], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> Artifact:
    """Train to the last step, or until `stop` returns true. The checkpoint is up to date when this returns."""
    with distributed.processes(config.device) as (rank, world, device), ExitStack() as stack:
        if config.threads:
            torch.set_num_threads(config.threads)
        torch.manual_seed(config.seed)
        parts, held = training_parts(config), held_back(config)
        empties(config.empty, held_back=False)  # a wrong folder is reported before the run is created
        if not resume:
            refuse_broken([*repeated(parts, ()), *held])
        if rank == 0:
            stack.enter_context(locked(folder) if resume else claimed(folder))
        artifact = (
            Artifact.load(folder) if resume else make_artifact(folder.resolve().name, config, repeated(parts, ()))
        )
        network = build(artifact.layout)
        if not resume or not (folder / CHECKPOINT).exists():
            initialise(network, config.init)
        if rank == 0 and not resume:
            artifact.save(folder)
        network = network.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        average = None
        if config.average:
            # The statistics of norms are averaged, too: those of the last step do not fit the mean of the weights.
            average = AveragedModel(network, multi_avg_fn=_running_mean(config.average), use_buffers=True)
        run = RunState(folder, config, artifact, network, make_optimiser(network, config), Schedule(config), average)
        if resume:
            run.restore()
        if stop() and not resume:
            raise KeyboardInterrupt  # nothing is learnt yet, so nothing is left
        if rank == 0:
            config.write(folder)  # of a run that is resumed, with what was changed
        _loop(run, repeated(parts, config.repeat), held, device, rank, world, watch, stop)
        return run.artifact


def _loop(
    run: RunState,
    samples: list[dataset.Sample],
    held: list[dataset.Sample],
    device: torch.device,
    rank: int,
    world: int,
    watch: Callable[[StepMetrics], None],
    stop: Callable[[], bool],
) -> None:
    config = run.config
    stream = loader(
        tiles_of(run, samples), Positions(config.batch, run.step, config.steps, rank, world), config.workers
    )
    learn = learner(run, device)
    saved = time.monotonic()

    def validate() -> None:
        if rank == 0:
            run.save()  # a validation takes minutes: what was learnt must not depend on its end
        progress = _validate(run, held, device, rank, world, stop)
        if progress is None:
            return
        log.write(progress)
        watch(progress)
        if rank == 0:
            log.flush()
            run.save()

    with MetricsLog(run.folder, run.step, enabled=rank == 0) as log:
        if run.due:
            validate()  # the run was stopped before or in it
        while not run.over and not distributed.agree(stop(), device):
            tiles, counts = next(stream)
            values = learn(tiles, counts)
            run.schedule.saw(values["loss"])
            run.step += 1
            log.write(StepMetrics(run.step, config.steps, values), every=10)
            watch(StepMetrics(run.step, config.steps, values))
            if run.due:
                validate()
            if rank == 0 and time.monotonic() - saved > config.checkpoint_seconds:
                log.flush()
                run.keep()
                saved = time.monotonic()
        if rank == 0:
            run.keep()


def tiles_of(run: RunState, samples: list[dataset.Sample]) -> Tiles:
    config = run.config
    return Tiles(
        samples=samples,
        augment=Augment(
            config.crop,
            scale=config.scale,
            mirror=config.mirror,
            blind=config.cut_margin,
            degrade=config.degrade,
            jitter=config.jitter,
        ),
        cell=config.cell,
        padding=run.artifact.normalisation.padding,
        seed=config.seed,
        kernel=config.kernel_override,
        empties=empties(config.empty, held_back=False),
        empty_share=config.empty_share,
        degraded_share=config.degraded_share,
    )


def _running_mean(decay: float) -> Callable[[Tensors, Tensors, Tensor | int], None]:
    """An exponential mean. Its decay is lower at first, so that a short run does not average its initial weights."""

    def update(mean: Tensors, latest: Tensors, seen: Tensor | int) -> None:
        kept = min(decay, (1 + float(seen)) / (10 + float(seen)))
        get_ema_multi_avg_fn(kept)(mean, latest, seen)  # type: ignore[no-untyped-call]

    return update


def learner(run: RunState, device: torch.device) -> Callable[[Tensor, Tensor], dict[str, float]]:
    """A function for one step of the optimiser: tiles and counts -> losses, the mean over all processes."""
    config, normalisation = run.config, run.artifact.normalisation
    losses = TrainingLoss(run.artifact, config.count_loss, config.output_relu).to(device)
    mean, std = torch.tensor(normalisation.mean, device=device), torch.tensor(normalisation.std, device=device)
    wrapped = distributed.wrap(run.network, device)
    forward = torch.compile(wrapped) if config.compile else wrapped
    autocast = distributed.autocast(device, config.precision)

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
        if config.clip:
            nn.utils.clip_grad_norm_(run.network.parameters(), config.clip)
        run.optimiser.step()
        if run.average is not None:
            run.average.update_parameters(run.network)
        values = distributed.mean({name: float(value.detach()) for name, value in parts.items()}, device)
        if not math.isfinite(values["loss"]):
            raise ModelError(f"The loss is no longer finite at step {run.step}: try a smaller --lr.")
        return values | {"lr": rate}

    return learn


def _validate(
    run: RunState, held: list[dataset.Sample], device: torch.device, rank: int, world: int, stop: Callable[[], bool]
) -> StepMetrics | None:
    """MAE and RMSE on the validation split, through the code path of serving; then save the weights.

    None if the process was asked to stop; of several processes none stops here, where the others would wait for it.
    """
    chosen = held[:: max(1, len(held) // run.config.validate_images)] if run.config.validate_images else held
    runner = torch_runner(run.result.eval(), run.artifact, device)
    errors: list[float] = []
    for sample in chosen[rank::world]:
        if world == 1 and stop():
            return None
        errors += count_errors([sample], run.artifact, runner)
    total, square, images = distributed.total([sum(map(abs, errors)), sum(e * e for e in errors), len(errors)], device)
    mae = total / images if images else math.inf
    # Trained on all images, the network has seen those of the validation split, too.
    name = "val" if run.config.train_on == "fit" else "train"
    values = {f"{name}_mae": mae, f"{name}_rmse": math.sqrt(square / images)} if images else {}
    run.validated = run.step
    if rank == 0 and (run.config.keep == "last" or mae < run.best or not images):
        run.export_weights()
        metrics = run.artifact.metrics | values | {"step": float(run.step)}
        run.artifact = run.artifact.model_copy(update={"metrics": metrics})
        run.artifact.save(run.folder)
    run.best = min(run.best, mae)
    return StepMetrics(run.step, run.config.steps, values, kind="val")


def _set_mode(network: UEPNet, config: Config) -> None:
    network.train()
    for part in network.encoder.early(config.freeze):
        part.eval()  # batch norms keep their initial statistics there
    if config.fixed_norms:
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()


def make_optimiser(network: UEPNet, config: Config) -> torch.optim.Optimizer:
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
        return torch.optim.SGD(settings, lr=config.lr, momentum=config.momentum)
    return torch.optim.AdamW(settings, lr=config.lr)
