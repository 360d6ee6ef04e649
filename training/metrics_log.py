"""metrics.jsonl and TensorBoard: what a run reports while it trains."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass
class StepMetrics:
    """Figures of one step, or of a validation: what `watch` receives and the log stores."""

    step: int
    steps: int
    values: dict[str, float]
    kind: str = "train"


class MetricsLog:
    """Writes metrics.jsonl and TensorBoard. On resuming, lines after the checkpoint's step are removed."""

    def __init__(self, folder: Path, step: int, enabled: bool) -> None:
        self._enabled = enabled
        if not enabled:
            return
        from torch.utils.tensorboard import SummaryWriter

        path = folder / "metrics.jsonl"
        if path.exists():
            lines = path.read_text().splitlines(keepends=True)
            kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] <= step]
            path.write_text("".join(kept))
        self._file = path.open("a")
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, metrics: StepMetrics, every: int = 1) -> None:
        if not self._enabled or metrics.step % every:
            return
        self._file.write(json.dumps({"step": metrics.step, "kind": metrics.kind, **metrics.values}) + "\n")
        for name, value in metrics.values.items():
            self._board.add_scalar(f"{metrics.kind}/{name}", value, metrics.step)

    def flush(self) -> None:
        if self._enabled:
            self._file.flush()
            self._board.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            self._file.close()
            self._board.close()
