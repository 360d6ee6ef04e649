"""What changes from step to step of a run, and the files that keep it: checkpoint.pt and weights.safetensors."""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from uepnet.model.artifact import Artifact
from uepnet.model.errors import InputError, ModelError
from uepnet.model.network import UEPNet
from uepnet.training.config import Config
from uepnet.training.schedule import Schedule
from uepnet.training.weights_file import save_weights


@dataclass
class RunState:
    """A run in progress: what the loop changes from step to step."""

    folder: Path
    config: Config
    artifact: Artifact
    network: UEPNet
    optimiser: torch.optim.Optimizer
    schedule: Schedule
    average: AveragedModel | None = None  # the running mean of the weights; it is what is saved, where there is one
    step: int = 0
    validated: int = 0  # the step of the last validation
    best: float = math.inf
    seconds: float = 0.0
    started: float = field(default_factory=time.monotonic)

    @property
    def over(self) -> bool:
        return self.step >= self.config.steps or self.schedule.over

    @property
    def due(self) -> bool:
        """Whether the weights of this step are to be validated."""
        return self.step > self.validated and (self.over or self.step % self.config.validate_every == 0)

    @property
    def result(self) -> nn.Module:
        """The network that is validated and saved."""
        return self.average.module if self.average is not None else self.network

    def save(self) -> None:
        """Write checkpoint.pt; a crash in the middle leaves the old one."""
        state = {
            "layout": self.artifact.layout.model_dump_json(),
            "step": self.step,
            "validated": self.validated,
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
        self.validated = state.get("validated", self.step)  # up to version 0.1 there was none to be made up for
        if self.step > self.config.steps:
            raise InputError(
                f"The run has made {self.step} steps already: --steps must be more, not {self.config.steps}."
            )
        torch.set_rng_state(state["rng"])

    def keep(self) -> None:
        """Checkpoint and weights of a run that goes on, or is stopped: it can be resumed and exported at any moment."""
        self.save()
        weights = self.folder / "weights.safetensors"
        if self.config.keep == "best" and weights.exists():
            return
        self.export_weights()
        if self.artifact.metrics.get("step") != self.step:  # those of other weights
            self.artifact = self.artifact.model_copy(update={"metrics": {"step": float(self.step)}})
            self.artifact.save(self.folder)

    def export_weights(self) -> None:
        partial = self.folder / "weights.partial"
        save_weights(self.result.state_dict(), partial)
        partial.replace(self.folder / "weights.safetensors")
