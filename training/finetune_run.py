"""The files of fine-tuning: what it starts from, and the run that it leaves, complete or not at all."""

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from uepnet.model.artifact import FILE, Artifact, Precision
from uepnet.model.errors import DataError, ModelError, OutputError
from uepnet.model.runtime import BUNDLED
from uepnet.training import familiarity
from uepnet.training.data.dataset import Sample, total_people
from uepnet.training.data.seen import KEY, digests, seen_by
from uepnet.training.export import export
from uepnet.training.finetune import Start
from uepnet.training.parity import LARGE, SMALL, cut_probes
from uepnet.training.prepare import PLACES
from uepnet.training.run_folder import locked, missing, remove
from uepnet.training.starting_weights import BUNDLED_WEIGHTS
from uepnet.training.verdict import Verdict
from uepnet.training.weights_file import save_weights

WEIGHTS = "weights.safetensors"
MODEL = "model"  # in a run: its model directory, ready to serve
VERDICT = "verdict.json"
PROBES = 8  # tiles on which the exported model is compared with torch


def start_from(init: Path | None) -> Start:
    """The bundled model, or a run that was fine-tuned or trained and exported into its folder."""
    if init is None:
        return Start(Artifact.load(BUNDLED), _weights(BUNDLED_WEIGHTS), BUNDLED)
    if not (init / WEIGHTS).is_file():
        if (init / FILE).is_file():
            raise ModelError(f"{init} is a model directory without weights to train: give the run that it came from.")
        raise ModelError(f"{init} is not a training run: it has no {WEIGHTS}.")
    model = init / MODEL
    if not (model / FILE).is_file():
        raise ModelError(f"{init} has no exported model: run `uepnet export {init} --out {model}` first.")
    return Start(Artifact.load(model), familiarity.joined(_weights(init / WEIGHTS), init), model)


def _weights(path: Path) -> dict[str, torch.Tensor]:
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{path} does not hold weights ({type(error).__name__}).") from None


@contextmanager
def new_run(folder: Path) -> Iterator[Path]:
    """A folder beside `folder` that takes its place at the end; after an error or Ctrl-C nothing is left."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder} exists and is not empty: choose another --out.")
    made = missing(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        workshop = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise OutputError(f"The run's folder {folder} cannot be created: {error.strerror}.") from None
    try:
        with locked(folder):  # so that a second fine-tuning is refused now, and not when it is done
            workshop.chmod(0o755)
            yield workshop
            if folder.exists():
                folder.rmdir()
            workshop.rename(folder)
    except OSError as error:
        raise OutputError(f"The run {folder} cannot be written: {error.strerror}.") from None
    finally:
        try:
            shutil.rmtree(workshop, ignore_errors=True)
        finally:  # once more, if an impatient second Ctrl-C came in between
            shutil.rmtree(workshop, ignore_errors=True)
            remove(made)


def write_run(
    folder: Path,
    name: str,
    start: Start,
    verdict: Verdict,
    samples: Sequence[Sample],
    precisions: Sequence[Precision],
    watch: Callable[[str], None] = lambda _: None,
) -> Artifact:
    """Settings, weights, losses and verdict, and in `model` the model directory of the model that is kept."""
    verdict.config.write(folder)
    weights, head = familiarity.split(verdict.weights)
    save_weights(weights, folder / WEIGHTS)
    if head:
        save_weights(head, folder / familiarity.FILE)
    rows = [{**row, "step": int(row["step"]), "copy": int(row["copy"]), "kind": "train"} for row in verdict.log]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / VERDICT).write_text(json.dumps(verdict.as_json(), indent=1) + "\n")
    if verdict.kept == "old":
        verdict.artifact.save(folder)
        shutil.copytree(start.model, folder / MODEL)
        verdict.artifact.save(folder / MODEL)
        return verdict.artifact
    artifact = _described(verdict.artifact, name, start, verdict, samples)
    artifact.save(folder)
    paths = [sample.image for sample in samples]
    exported = export(
        folder,
        folder / MODEL,
        precisions,
        probes=cut_probes(paths, PROBES, LARGE, seed=0, scale=artifact.scale),
        calibration=cut_probes(paths, 24, SMALL, seed=1, scale=artifact.scale) if "int8" in precisions else [],
        unproven=True,  # one camera shows few classes; the start was proven with many
        watch=watch,
    )
    return exported.artifact


def _described(artifact: Artifact, name: str, start: Start, verdict: Verdict, samples: Sequence[Sample]) -> Artifact:
    """The artifact of the new model: its name, what it was trained on, and its errors on held-back pictures."""
    old, config = start.artifact, verdict.config
    settings = {key: value for key, value in config.model_dump(mode="json").items() if key not in PLACES}
    numbers = verdict.as_json()["after"]
    assert isinstance(numbers, dict)
    return artifact.model_copy(
        update={
            "version": re.sub(r"[^A-Za-z0-9._-]", "-", name)[:64] or "run",
            "files": {},
            "metrics": {f"cross_validated_{key}": float(numbers[key]) for key in ("mae", "rmse", "bias")},
            "training": {
                "data": [name for name, _ in config.data],
                "images": len(samples),
                "people": total_people(samples),
                "settings": settings,
                "started_from": f"{old.name} {old.version}",
                KEY: sorted(seen_by(old).union(digests(sample.image for sample in samples))),
                "torch": torch.__version__,
            },
        }
    )
