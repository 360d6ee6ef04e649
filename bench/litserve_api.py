"""The model behind LitServe, as its documentation shows it: a module of its own, since its workers import it."""

from pathlib import Path

import litserve
from fastapi import UploadFile


class CountApi(litserve.LitAPI):  # type: ignore[misc]  # litserve comes without types
    """Counts the multipart field `request` with the exported ONNX file in ONNX Runtime."""

    def __init__(self, model: Path | None, threads: int) -> None:
        super().__init__()
        self.model, self.threads = model, threads

    def setup(self, device: str) -> None:
        from uepnet.model.counter import Counter

        self.counter = Counter(self.model, device="cpu", threads=self.threads, engine="onnxruntime")

    def decode_request(self, request: UploadFile) -> bytes:
        return request.file.read()

    def predict(self, x: bytes) -> float:
        return self.counter.count(x).count

    def encode_response(self, output: float) -> dict[str, float]:
        return {"count": output}
