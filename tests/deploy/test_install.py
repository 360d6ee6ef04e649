"""The Dockerfile's own install commands, run in an empty environment; what they install then serves and counts."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.dockerfile import Stage, lineage, read_stages
from support.paths import ROOT
from support.servers import encoded, eventually, grey
from support.toy import toy_model

pytestmark = pytest.mark.system
STAGES = read_stages(ROOT / "Dockerfile")


class Image:
    """A folder in which stages are built by hand: its absolute paths are moved below the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        bin_dir = folder / "host-python/bin"  # python and pip as the base image has them
        subprocess.run([sys.executable, "-m", "venv", folder / "host-python"], check=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("UEPNET_", "PYTHON"))}
        self.environment = kept | {"PATH": f"{bin_dir}:/usr/bin:/bin"}

    def build(self, stages: list[Stage]) -> None:
        place = self.folder
        for word, rest in [instruction for stage in stages for instruction in stage.instructions]:
            if word == "WORKDIR":
                place = self.folder / rest.strip("/")
                place.mkdir(parents=True, exist_ok=True)
            elif word == "COPY" and not rest.startswith("--from"):
                *sources, target = rest.split()
                for source in sources:
                    self._copy(source, place / target)
            elif word == "RUN":
                self._run(rest, place)

    def _copy(self, pattern: str, target: Path) -> None:
        for source in ROOT.glob(pattern):
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)

    def _run(self, command: str, place: Path) -> None:
        words = [word for word in command.split(" ") if not word.startswith("--mount")]
        for path in ("/opt/uepnet", "/wheels", "/models", "/state"):
            words = [word.replace(path, str(self.folder) + path) for word in words]
        (self.folder / "opt").mkdir(exist_ok=True)
        done = subprocess.run(
            ["bash", "-euc", " ".join(words)], cwd=place, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


@pytest.fixture(scope="module", params=["cpu", "gpu"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    image = Image(tmp_path_factory.mktemp(f"image-{request.param}"))
    for target in ("wheel", f"dependencies-{request.param}", request.param):
        image.build(lineage(STAGES, target))
    yield image
    shutil.rmtree(image.folder)  # gigabytes, with CUDA


def test_the_image_holds_the_service_and_neither_training_nor_pip(image: Image) -> None:
    (packages,) = image.folder.glob("opt/uepnet/lib/python3.*/site-packages")
    found = {path.name for path in packages.iterdir()}
    assert {"uepnet", "onnxruntime", "fastapi"} <= found
    assert not {"torch", "scipy", "matplotlib", "ray", "pip", "setuptools"} & found
    assert (packages / "uepnet/service/page/index.html").is_file()
    assert (packages / "uepnet/deploy/ray_serve.py").is_file()


def test_what_is_installed_serves_a_count_and_stops_on_the_stop_signal(image: Image, tmp_path: Path) -> None:
    model = toy_model(tmp_path / "model")
    environment = image.environment | {"UEPNET_PORT": "0", "UEPNET_MODEL": str(model), "PYTHONDONTWRITEBYTECODE": "1"}
    log = (tmp_path / "log").open("w+")
    command = [image.folder / "opt/uepnet/bin/uepnet", *STAGES["base"].all("CMD")[0].strip('[]"').split()]
    with log, subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=log, stdout=log) as service:
        try:
            eventually(lambda: "listening on " in (tmp_path / "log").read_text() or service.poll() is not None)
            url = (tmp_path / "log").read_text().split("listening on ")[1].split()[0]
            eventually(lambda: httpx.get(f"{url}/v2/health/ready").status_code == 200)
            answer = httpx.post(f"{url}/v1/count", content=encoded(grey(64, 64)), headers={"Content-Type": "image/png"})
            assert answer.status_code == 200 and answer.json()["count"] > 0
            assert STAGES["base"].all("STOPSIGNAL") == ["SIGTERM"]
            service.terminate()
            started = time.monotonic()
            assert service.wait(40) == 0
            assert time.monotonic() - started < 40
        finally:
            service.kill()
