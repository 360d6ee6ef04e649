"""Two hundred cameras: what each count costs the event loop, and how the database grows.

Costs are numbers of calls of Python functions, so that neither a busy machine nor a garbage collection changes them.
"""

import asyncio
import sqlite3
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import yaml

from uepnet.service.cameras.control_room import ControlRoom
from uepnet.service.metrics import Metrics
from uepnet.service.schemas import Camera, ModelSummary, RangeAnswer, ZoneAnswer
from uepnet.service.settings import Settings

CAMERAS, FRAMES = 200, 15  # a minute of one frame every four seconds
BYTES_PER_COUNT = 60  # docs/control-room.md says about 47; the share of pages that are not full yet comes on top
HALF = [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]
MODEL = ModelSummary(name="toy", version="1", precision="fp32", device="cpu")


def counted(name: str, people: float) -> Camera:
    return Camera(
        camera=name,
        count=people,
        range=RangeAnswer(low=0.8 * people, high=1.2 * people, level=0.9),
        zones=[ZoneAnswer(name="doors", count=people / 2, range=RangeAnswer(low=0.0, high=people, level=0.9))],
        width=640,
        height=480,
        warnings=[],
        time=time.time(),
        model=MODEL,
        request_id="0" * 32,
    )


def calls(work: Callable[[], object]) -> int:
    """How many Python functions this thread calls in `work`."""
    called = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return called


async def watch_all(room: ControlRoom, cameras: int) -> tuple[float, float]:
    """All frames, with a page that listens: the calls for one frame, and for one camera's state as the wall asks."""
    async with room.running():
        while not room.leads:
            await asyncio.sleep(0.05)
        room.cameras.listen()
        called = 0
        for frame in range(FRAMES):
            for number in range(cameras):
                camera = counted(f"camera {number}", 80.0 + 30 * ((frame + number) % 7) / 7)
                called += calls(lambda camera=camera: room.note(camera))  # type: ignore[misc]
            await asyncio.sleep(0.01)
        assert len(room.states()) == cameras
        return called / (FRAMES * cameras), calls(room.states) / cameras


def room_of(cameras: int, folder: Path) -> ControlRoom:
    limits = [{"people": 100}, {"zone": "doors", "people": 50}]
    one = {"zones": [{"name": "doors", "units": "fractions", "polygon": HALF}], "limits": limits}
    folder.mkdir()
    file, database = folder / "cameras.yml", folder / "history.sqlite"
    file.write_text(yaml.safe_dump({"cameras": {f"camera {number}": one for number in range(cameras)}}))
    settings = Settings(cameras=file, history=f"sqlite:///{database}", max_cameras=cameras)
    return ControlRoom(settings, Metrics())


def test_a_frame_costs_as_much_among_two_hundred_cameras_as_among_ten_and_the_database_grows_as_documented(
    tmp_path: Path,
) -> None:
    few_frame, few_state = asyncio.run(watch_all(room_of(10, tmp_path / "few"), 10))
    many_frame, many_state = asyncio.run(watch_all(room_of(CAMERAS, tmp_path / "many"), CAMERAS))
    assert many_frame < 1.2 * few_frame < 2000
    assert many_state < 1.2 * few_state < 1000
    connection = sqlite3.connect(tmp_path / "many" / "history.sqlite")
    (rows,) = connection.execute("SELECT count(*) FROM counts").fetchone()
    (size,) = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'counts'").fetchone()
    connection.close()
    assert rows == 2 * CAMERAS * FRAMES
    assert size / rows < BYTES_PER_COUNT
