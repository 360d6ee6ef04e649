"""The same model behind three servers, each in a process of its own: this service, LitServe, FastAPI with torch.

All take a JPEG and answer its count as JSON, at the same scale and in the same tiles (`count_image`). LitServe gets the
exported ONNX file in ONNX Runtime; the FastAPI handler is what one writes first: torch eager, one image at a time.
"""

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import httpx

from uepnet.bench.processes import tree
from uepnet.model.artifact import Artifact
from uepnet.model.errors import InferenceError

READY_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Peer:
    """A running server and how to ask it."""

    name: str
    url: str
    path: str
    pid: int
    multipart: bool = False

    async def ask(self, http: httpx.AsyncClient, image: bytes) -> int:
        if self.multipart:
            answer = await http.post(self.url + self.path, files={"request": ("image.jpg", image, "image/jpeg")})
        else:
            answer = await http.post(self.url + self.path, content=image, headers={"Content-Type": "image/jpeg"})
        return answer.status_code


@contextmanager
def uepnet_service(model: Path | None, threads: int) -> Iterator[Peer]:
    with _process(_serve_uepnet, model, threads) as (url, pid):
        yield Peer("uepnet", url, "/v1/count", pid)


@contextmanager
def litserve_onnx(model: Path | None, threads: int) -> Iterator[Peer]:
    with _process(_serve_litserve, model, threads) as (url, pid):
        yield Peer("litserve", url, "/predict", pid, multipart=True)


@contextmanager
def fastapi_torch(model: Path | None, threads: int) -> Iterator[Peer]:
    with _process(_serve_fastapi, model, threads) as (url, pid):
        yield Peer("fastapi-torch", url, "/count", pid)


Starter = Callable[..., None]
PEERS = {"uepnet": uepnet_service, "litserve": litserve_onnx, "fastapi-torch": fastapi_torch}


@contextmanager
def _process(target: Starter, model: Path | None, threads: int) -> Iterator[tuple[str, int]]:
    """(URL, process id) of a server that answers."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=target, args=(theirs, model, threads))
    process.start()
    try:
        url = str(ours.recv())  # EOFError where the process ends before it has one
        _wait(process, int(url.rpartition(":")[2]))
        yield url, int(process.pid or 0)
    finally:
        below = list(tree(process.pid))[1:] if process.pid else []
        process.terminate()
        process.join(30)
        for child in below:  # LitServe's workers outlive it
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def _wait(process: BaseProcess, port: int) -> None:
    until = time.monotonic() + READY_SECONDS
    while process.is_alive() and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    raise InferenceError("A server did not start: its own message stands above.")


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _serve_uepnet(pipe: Connection, model: Path | None, threads: int) -> None:
    from uepnet.bench.served import serve

    serve(pipe, model, None, False, {"threads": threads})


def _serve_litserve(pipe: Connection, model: Path | None, threads: int) -> None:
    import litserve

    from uepnet.bench.litserve_api import CountApi

    port = _free_port()
    pipe.send(f"http://127.0.0.1:{port}")
    server = litserve.LitServer(
        CountApi(model, threads), accelerator="cpu", devices=1, workers_per_device=1, timeout=600
    )
    server.run(host="127.0.0.1", port=port, log_level="error", generate_client_file=False)


def _serve_fastapi(pipe: Connection, model: Path | None, threads: int) -> None:
    import torch
    import uvicorn
    from fastapi import FastAPI, Request

    from uepnet.model.count import count_image
    from uepnet.model.image import load_image
    from uepnet.model.network import build
    from uepnet.model.runtime import BUNDLED
    from uepnet.training.evaluate import torch_runner
    from uepnet.training.starting_weights import initialise

    torch.set_num_threads(threads)
    artifact = Artifact.load(model or BUNDLED)
    network = build(artifact.layout)
    if model is None:
        initialise(network, "")  # the bundled weights; another model's are not in its directory, and cost the same
    run_tiles = torch_runner(network, artifact, torch.device("cpu"))
    app = FastAPI()

    @app.post("/count")
    async def count(request: Request) -> dict[str, float]:
        return {"count": count_image(load_image(await request.body()), artifact, run_tiles).count}

    port = _free_port()
    pipe.send(f"http://127.0.0.1:{port}")
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
