"""ONNX Runtime: which file, which device, which shapes; tiles in, maps out.

Before the first image `Runtime` finds out whether the model directory is whole, whether the device really
runs it (of a missing CUDA library ONNX Runtime only logs, and quietly stays on the CPU), and which precision
the measured parities allow. One code path serves CPU and CUDA: inputs and outputs are bound to the device's
memory; the shape policy alone differs.
"""

import ctypes
import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime.capi import onnxruntime_pybind11_state as status

from uepnet.model.artifact import Artifact, Precision
from uepnet.model.decode import Maps
from uepnet.model.device import available_cores, cuda_driver, cuda_memory, multiplies_bytes
from uepnet.model.errors import ArtifactError, DeviceError, InferenceError, ModelError
from uepnet.model.shapes import MAX_BATCH_PIXELS, ShapePolicy
from uepnet.model.tiling import Tile

BUNDLED = Path(__file__).parent / "bundled"
CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
# A file whose count differs from torch's by more than this is neither exported nor chosen.
LIMITS: dict[Precision, float] = {"fp32": 0.001, "fp16": 0.005, "int8": 0.02}
WORTHWHILE_SPEED = 1.15  # int8 must be this many times as fast as fp32 to be worth its error

log = logging.getLogger(__name__)

# What ONNX Runtime raises has no common base below Exception.
RUNTIME_ERRORS = (
    status.EPFail,
    status.EngineError,
    status.Fail,
    status.InvalidArgument,
    status.InvalidGraph,
    status.InvalidProtobuf,
    status.NoSuchFile,
    status.NotImplemented,
    status.RuntimeException,
    RuntimeError,
    ValueError,
)


class Runtime:
    """A model directory on a device. Raises ModelError, with the reason, where it cannot run as asked."""

    def __init__(
        self,
        model_dir: Path | None = None,
        device: str = "auto",
        precision: str = "auto",
        threads: int = 0,
        max_batch: int = 8,
        max_batch_pixels: int = MAX_BATCH_PIXELS,
    ) -> None:
        self.model_dir = BUNDLED if model_dir is None else Path(model_dir)
        self.artifact = Artifact.load(self.model_dir)
        self.threads = threads if threads > 0 else available_cores()
        self.fallback: str | None = None
        ordinal, reason = _cuda_ordinal(device)
        session = None
        if ordinal is not None and reason is None:
            self.precision = choose_precision(self.artifact, precision, cuda=True)
            session = self._open([(CUDA, _cuda_options(ordinal)), CPU])
            if session.get_providers()[0] != CUDA:
                session, reason = None, f"ONNX Runtime could not load CUDA ({cuda_trouble()})"
        if session is None and device != "auto" and device != "cpu":
            raise DeviceError(f"Device {device} cannot run the model: {reason}.")
        if session is None:
            if reason is not None:
                self.fallback = f"Running on the CPU: {reason}."
                log.warning(self.fallback)
            self.precision = choose_precision(self.artifact, precision, cuda=False)
            session, ordinal = self._open([CPU]), None
        self._session = session
        self._ordinal = ordinal
        self.device = "cpu" if ordinal is None else f"cuda:{ordinal}"
        self.provider: str = session.get_providers()[0]
        tile = self.artifact.tiling.tile
        self.policy = ShapePolicy() if ordinal is None else ShapePolicy.for_cuda(tile, max_batch, max_batch_pixels)
        log.info("%s %s on %s, %s", self.artifact.name, self.artifact.version, self.device, self.precision)

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        return self.policy.batch_sizes

    def padded_shape(self, height: int, width: int) -> tuple[int, int]:
        """The shape in which a tile reaches the device; tiles of equal padded shape may share a batch."""
        return self.policy.padded_shape(height, width)

    def device_memory(self) -> tuple[int, int] | None:
        """(used, total) bytes of the CUDA device; None on the CPU or where the driver does not say."""
        return None if self._ordinal is None else cuda_memory(self._ordinal)

    def run(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> list[Maps]:
        """The maps of each tile: [n, h, w, 3], or tiles of several shapes that have one padded shape."""
        most = self._most(tiles[0]) if len(tiles) else 1
        return [maps for start in range(0, len(tiles), most) for maps in self._run(tiles[start : start + most])]

    def run_tiles(self, tiles: Iterator[Tile]) -> Iterator[Maps]:
        """Lazy in, in order out: holds one batch at a time."""
        batch: list[Tile] = []
        for tile in tiles:
            if batch and (
                len(batch) == self._most(batch[0])
                or self.padded_shape(*tile.shape[:2]) != self.padded_shape(*batch[0].shape[:2])
            ):
                yield from self._run(batch)
                batch = []
            batch.append(tile)
        if batch:
            yield from self._run(batch)

    def warm_up(self) -> None:
        """Run every bucket once: allocates, picks convolution algorithms, and proves that the device can."""
        colour = np.array(self.artifact.normalisation.padding, np.uint8)
        for n, height, width in self.policy.warm_up_shapes(self.artifact.tiling.tile):
            try:
                self.run(np.broadcast_to(colour, (n, height, width, 3)))
            except InferenceError as error:
                raise DeviceError(f"Warm-up failed: {error}") from error

    def _most(self, tile: Tile) -> int:
        return self.policy.most_tiles(*self.padded_shape(*tile.shape[:2]))

    def _open(self, providers: list[Any]) -> Any:
        return open_session(self.model_dir, self.artifact, self.precision, providers, self.threads)

    def _run(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> list[Maps]:
        """At most one batch of tiles of one padded shape."""
        batch = self._padded(tiles)
        outputs = self._bound_run(batch)
        rows, cols = (side // self.artifact.cell for side in batch.shape[1:3])
        for name, output in outputs.items():
            if output.shape != (len(batch), rows, cols):
                raise InferenceError(
                    f"The model answered {name} of shape {output.shape} to tiles of shape {batch.shape}."
                )
        return [self._maps(outputs, index, *tile.shape[:2]) for index, tile in enumerate(tiles)]

    def _padded(self, tiles: NDArray[np.uint8] | Sequence[Tile]) -> NDArray[np.uint8]:
        """One contiguous [bucket, padded height, padded width, 3]; a copy only where something is padded."""
        height, width = self.padded_shape(*tiles[0].shape[:2])
        size = self.policy.batch_size(len(tiles))
        multiple = self.artifact.multiple
        if height % multiple or width % multiple:
            raise ValueError(f"a tile's sides must be multiples of {multiple}, not {width}x{height}")
        if size == len(tiles) == 1 and tiles[0].shape[:2] == (height, width):
            return np.ascontiguousarray(tiles[0])[np.newaxis]
        batch = np.empty((size, height, width, 3), np.uint8)
        batch[:] = self.artifact.normalisation.padding
        for slot, tile in zip(batch, tiles, strict=False):
            slot[: tile.shape[0], : tile.shape[1]] = tile
        return batch

    def _bound_run(self, batch: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
        kind, ordinal = ("cpu", 0) if self._ordinal is None else ("cuda", self._ordinal)
        names = [output.name for output in self._session.get_outputs()]
        try:
            binding = self._session.io_binding()
            value = onnxruntime.OrtValue.ortvalue_from_numpy(batch, kind, ordinal)
            binding.bind_ortvalue_input("tiles", value)
            for name in names:
                binding.bind_output(name, kind, ordinal)
            self._session.run_with_iobinding(binding)
            return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))
        except RUNTIME_ERRORS as error:
            n, height, width, _ = batch.shape
            log.error("%s: %s", self.device, error)
            raise InferenceError(
                f"{self.device} could not run a batch of {n} tiles of {width}x{height} in {self.precision}."
            ) from error

    def _maps(self, outputs: dict[str, NDArray[Any]], index: int, height: int, width: int) -> Maps:
        """The maps of one tile without the cells that only padding fills."""
        rows, cols = -(-height // self.artifact.cell), -(-width // self.artifact.cell)
        cropped = {name: output[index, :rows, :cols] for name, output in outputs.items()}
        classes = tuple(cropped[f"classes_{head}"] for head in range(len(self.artifact.heads)))
        return Maps(classes, cropped.get("counts"), cropped.get("variance"))


def choose_precision(artifact: Artifact, asked: str, cuda: bool) -> Precision:
    """The precision asked for; for `auto` the fastest whose measured difference lies within its limit."""
    known = get_args(Precision)
    if asked not in ("auto", *known):
        raise ModelError(f"Precision must be auto, {', '.join(known)}, not {asked!r}.")
    if not artifact.files:
        raise ModelError(
            f"Model {artifact.name} {artifact.version} has no ONNX file yet: make one with `uepnet export`."
        )
    if asked != "auto":
        if asked not in artifact.files:
            raise ModelError(f"This model has no {asked} file; it has {', '.join(artifact.files)}.")
        return asked
    if cuda and _within_limit(artifact, "fp16"):
        return "fp16"
    if not cuda and _within_limit(artifact, "int8"):
        parity = artifact.files["int8"].parity
        if parity is not None and parity.speed > WORTHWHILE_SPEED and multiplies_bytes():
            return "int8"
    order: tuple[Precision, ...] = ("fp32", "fp16", "int8")
    return next(precision for precision in order if precision in artifact.files)


def _within_limit(artifact: Artifact, precision: Precision) -> bool:
    """Whether the file is there and was measured to be close enough; unmeasured is not close enough."""
    file = artifact.files.get(precision)
    return file is not None and file.parity is not None and file.parity.count_difference <= LIMITS[precision]


def open_session(model_dir: Path, artifact: Artifact, precision: Precision, providers: list[Any], threads: int) -> Any:
    """A session on the file of this precision, after its bytes, metadata and signature were checked."""
    entry = artifact.files[precision]
    path = model_dir / entry.file
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise ModelError(f"{path} is damaged or of another model: its sha256 is not the artifact's.")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors: warnings about node placement help nobody here
    # Spinning threads would steal the cores that decode images.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(content, options, providers=providers)
    except RUNTIME_ERRORS as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(f"ONNX Runtime cannot load {path}: {reason}") from error
    _check_signature(session, artifact, path)
    return session


def _check_signature(session: Any, artifact: Artifact, path: Path) -> None:
    found_hash = session.get_modelmeta().custom_metadata_map.get("inference_hash")
    if found_hash != artifact.inference_hash:
        raise ArtifactError(f"{path} was exported for another artifact: their inference hashes differ.")
    expected = {"tiles": "tensor(uint8)"}
    expected |= {f"classes_{head}": "tensor(uint8)" for head in range(len(artifact.heads))}
    if artifact.decoding != "argmax":
        expected |= {"counts": "tensor(float)", "variance": "tensor(float)"}
    found = {value.name: value.type for value in (*session.get_inputs(), *session.get_outputs())}
    if found != expected:
        raise ModelError(f"{path} must have the inputs and outputs {expected}, not {found}.")


def _cuda_ordinal(device: str) -> tuple[int | None, str | None]:
    """(the CUDA device to try, why CUDA cannot be tried). Both None: the CPU is what is wanted."""
    if device == "cpu":
        return None, None
    number = device.removeprefix("cuda").removeprefix(":")
    if device not in ("auto", "cuda") and not (device == f"cuda:{number}" and number.isdecimal()):
        raise DeviceError(f"Device must be auto, cpu, cuda or cuda:N, not {device!r}.")
    if CUDA not in onnxruntime.get_available_providers():
        # A machine without an NVIDIA driver, asked for `auto`, loses nothing on the CPU: no fallback.
        missing = "this ONNX Runtime was built without CUDA (pip install 'uepnet[gpu]' has it)"
        return None, None if device == "auto" and cuda_driver() is None else missing
    onnxruntime.preload_dlls()  # the CUDA libraries that came as wheels
    return int(number) if number.isdecimal() else 0, None


def cuda_trouble() -> str:
    """Why the CUDA provider does not load, in the dynamic linker's words: it names the library that is missing."""
    folder = Path(onnxruntime.__file__).parent / "capi"
    try:
        ctypes.CDLL(str(folder / "libonnxruntime_providers_shared.so"), ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(folder / "libonnxruntime_providers_cuda.so"))
    except OSError as error:
        return str(error)
    return "its libraries are there: is there a CUDA device, and is the driver new enough?"


def _cuda_options(ordinal: int) -> dict[str, str]:
    options = {
        "device_id": str(ordinal),
        "cudnn_conv_algo_search": "HEURISTIC",  # EXHAUSTIVE measures anew for each shape, for the same speed
        "prefer_nhwc": "1",  # what tensor cores read
        "arena_extend_strategy": "kSameAsRequested",
    }
    memory = cuda_memory(ordinal)
    if memory is not None:
        options["gpu_mem_limit"] = str(int(0.9 * memory[1]))  # the rest is the driver's and cuDNN's
    return options
