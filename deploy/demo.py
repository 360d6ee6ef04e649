"""A control room to look at without owning a camera: three drawn places, a service, a watcher.

    make demo                                    or: python -m uepnet.deploy.demo

People walk on flat ground before a pinhole camera whose place is known, so zones have true areas. The crowd at
the gate grows and shrinks, and crosses its limit on the way. Everything is kept in a folder that is removed at the end.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter

WIDTH, HEIGHT = 800, 450
FRAMES = 60
ADMIN_KEY = "demo-admin-key"  # on this machine alone, for the demo's own cameras
HEAD_METRES, SHOULDER_METRES, HEAD_WIDTH_METRES = 1.6, 1.4, 0.27


@dataclass(frozen=True)
class Place:
    """A camera `height` metres above the ground, tilted down, and the people before it."""

    height: float
    tilt: float  # degrees
    focal: float  # pixels
    fewest: int
    most: int
    depth: tuple[float, float]  # where people walk, in metres from the camera
    half_width: float

    def pixels(self, places: NDArray[np.float64]) -> NDArray[np.float64]:
        """[n, 3] metres (x right, y away, z up) -> [n, 3] pixels and depth."""
        tilt = np.radians(self.tilt)
        x, y, z = (places - (0, 0, self.height)).T
        depth = y * np.cos(tilt) - z * np.sin(tilt)
        down = -y * np.sin(tilt) - z * np.cos(tilt)
        return np.stack([WIDTH / 2 + self.focal * x / depth, HEIGHT / 2 + self.focal * down / depth, depth], axis=1)

    def ground(self) -> dict[str, object]:
        """Four points on the ground that the picture shows, with their metres."""
        near, far = self.depth
        half = 0.6 * self.half_width
        metres = np.array([(-half, far), (half, far), (half, near + 1.0), (-half, near + 1.0)])
        points = self.pixels(np.column_stack([metres, np.zeros(4)]))[:, :2] / (WIDTH, HEIGHT)
        return {"points": np.round(points, 4).tolist(), "metres": metres.tolist()}

    def zone(self, left: float, right: float) -> list[list[float]]:
        """Heads of people between two shares of the place's width, as fractions of the picture."""
        near, far = self.depth
        x0, x1 = ((2 * share - 1) * self.half_width for share in (left, right))
        corners = np.array([(x0, far, 1.6), (x1, far, 1.6), (x1, near + 1.0, 1.6), (x0, near + 1.0, 1.6)])
        shares = np.clip(self.pixels(corners)[:, :2] / (WIDTH, HEIGHT), 0, 1)
        return [[float(x), float(y)] for x, y in np.round(shares, 4)]


PLACES = {
    "Gate": Place(6.0, 28, 620, 30, 170, (7.0, 20.0), 7.0),
    "Platform 3": Place(8.0, 30, 560, 60, 100, (8.0, 26.0), 10.0),
    "Hall": Place(7.0, 34, 520, 8, 26, (6.0, 18.0), 8.0),
}


def draw_frames(place: Place, folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    near, far = place.depth
    people = rng.uniform((-place.half_width, near), (place.half_width, far), (place.most, 2))
    pace = rng.normal(0, 0.5, people.shape)
    tones = rng.uniform(20, 160, (place.most, 1)) + rng.normal(0, 18, (place.most, 3))
    skins = rng.uniform(0.6, 1.05, (place.most, 1)) * (215, 170, 140)
    hairs = rng.integers(10, 60, (place.most, 1)) + rng.integers(0, 15, (place.most, 3))
    folder.mkdir(parents=True)
    for frame in range(FRAMES):
        people += pace
        for axis, (low, high) in enumerate(((-place.half_width, place.half_width), (near, far))):
            beyond = (people[:, axis] < low) | (people[:, axis] > high)
            pace[beyond, axis] *= -1
            people[:, axis] = np.clip(people[:, axis], low, high)
        share = 0.5 - 0.5 * np.cos(2 * np.pi * frame / FRAMES)
        number = round(place.fewest + (place.most - place.fewest) * share)
        image = _background()
        draw = ImageDraw.Draw(image)
        heads = place.pixels(np.column_stack([people, np.full(len(people), HEAD_METRES)]))
        for index in sorted(range(number), key=lambda one: -heads[one, 2]):
            x, y, depth = heads[index]
            width = max(3.0, place.focal * HEAD_WIDTH_METRES / depth)
            _draw_person(draw, float(x), float(y), width, tones[index], skins[index], hairs[index])
        blurred = np.asarray(image.filter(ImageFilter.GaussianBlur(0.7)), np.float32)
        noisy = np.clip(blurred + rng.normal(0, 5, (HEIGHT, WIDTH, 1)), 0, 255).astype(np.uint8)
        Image.fromarray(noisy).save(folder / f"{frame:03}.jpg", quality=92)


def _background() -> Image.Image:
    image = Image.new("RGB", (WIDTH, HEIGHT), (150, 160, 170))
    ImageDraw.Draw(image).rectangle((0, round(0.12 * HEIGHT), WIDTH, HEIGHT), fill=(118, 114, 108))
    return image


def _draw_person(
    draw: ImageDraw.ImageDraw,
    x: float,
    y: float,
    head: float,
    tone: NDArray[np.float64],
    skin: NDArray[np.float64],
    hair: NDArray[np.float64],
) -> None:
    def colour(values: NDArray[np.float64]) -> tuple[int, int, int]:
        red, green, blue = (int(value) for value in np.clip(values, 5, 235))
        return red, green, blue

    draw.ellipse((x - head, y + head * 0.6, x + head, y + head * 4.5), fill=colour(tone))
    draw.ellipse((x - head * 0.45, y - head * 0.5, x + head * 0.45, y + head * 0.75), fill=colour(skin))
    draw.chord((x - head * 0.52, y - head * 0.65, x + head * 0.52, y + head * 0.6), 150, 390, fill=colour(hair))


def write_cameras(folder: Path) -> Path:
    cameras = {}
    for seed, (name, place) in enumerate(PLACES.items()):
        draw_frames(place, folder / f"frames-{seed}", seed)
        cameras[name] = {
            "source": f"frames-{seed}",
            "fps": 1,
            "units": "fractions",
            "zones": [
                {"name": "left", "polygon": place.zone(0.1, 0.5)},
                {"name": "right", "polygon": place.zone(0.5, 0.9)},
            ],
            "ground": place.ground(),
            "keep_picture": True,
            "smooth_seconds": 3,
            "frozen_seconds": None,
            "limits": [{"people": round(0.7 * place.most), "for_seconds": 3, "cooldown_seconds": 10}],
        }
    cameras["Car park"] = {"silent_seconds": 15}
    path = folder / "cameras.yml"
    path.write_text(yaml.safe_dump({"cameras": cameras}, sort_keys=False))
    return path


def is_ready(server: str, service: subprocess.Popen[bytes]) -> bool:
    """Wait for it; False where the service has ended, which has said why then."""
    while service.poll() is None:
        try:
            urllib.request.urlopen(f"{server}/v2/health/ready", timeout=5).close()
            return True
        except OSError:
            time.sleep(0.3)
    return False


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8000, help="port of the service (default: 8000)")
    args = parser.parse_args(argv)
    try:
        socket.create_server(("127.0.0.1", args.port)).close()
    except OSError as error:
        print(f"port {args.port} cannot be used ({error.strerror}): name another one with --port", file=sys.stderr)
        return 2
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="uepnet-demo-") as name:
        folder = Path(name)
        print("drawing three places", flush=True)
        file = write_cameras(folder)
        uepnet = [sys.executable, "-m", "uepnet"]
        server = f"http://127.0.0.1:{args.port}"
        history = f"sqlite:///{folder / 'history.sqlite'}"
        serve = [*uepnet, "serve", "--port", str(args.port), "--cameras", str(file), "--history", history]
        key = os.environ.get("UEPNET_ADMIN_KEY") or ADMIN_KEY
        environment = {**os.environ, "UEPNET_ADMIN_KEY": key}  # with it zones and limits can be saved on the page
        processes = [subprocess.Popen([*serve, "--log-level", "warning"], env=environment)]
        try:
            print("starting the service", flush=True)
            if is_ready(server, processes[0]):
                processes.append(subprocess.Popen([*uepnet, "watch", str(file), "--server", server]))
                print(
                    f"look at {server}; to save zones and limits there, give the key {key}; end with Ctrl-C", flush=True
                )
            return processes[0].wait()
        except KeyboardInterrupt:
            return 0
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(30)


if __name__ == "__main__":
    sys.exit(main())
