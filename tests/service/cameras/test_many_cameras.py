"""Two hundred cameras: what each count costs the event loop, and how the database grows.

Costs are times of the processor, so that a busy machine changes nothing.
"""

import asyncio
import sqlite3
import time
from pathlib import Path

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


async def watch_all(room: ControlRoom) -> list[float]:
    """All frames, with a page that listens; what each took of the event loop's time, in seconds."""
    took = []
    async with room.running():
        while not room.leads:
            await asyncio.sleep(0.05)
        room.cameras.listen()
        for frame in range(FRAMES):
            for number in range(CAMERAS):
                camera = counted(f"camera {number}", 80.0 + 30 * ((frame + number) % 7) / 7)
                before = time.thread_time()
                room.note(camera)
                took.append(time.thread_time() - before)
            await asyncio.sleep(0.01)
        before = time.thread_time()
        assert len(room.states()) == CAMERAS
        assert time.thread_time() - before < 0.1, "all states, as the wall asks for them"
    return took


def test_two_hundred_cameras_cost_the_event_loop_little_and_the_database_grows_as_documented(tmp_path: Path) -> None:
    limits = [{"people": 100}, {"zone": "doors", "people": 50}]
    one = {"zones": [{"name": "doors", "units": "fractions", "polygon": HALF}], "limits": limits}
    file, database = tmp_path / "cameras.yml", tmp_path / "history.sqlite"
    file.write_text(yaml.safe_dump({"cameras": {f"camera {number}": one for number in range(CAMERAS)}}))
    settings = Settings(cameras=file, history=f"sqlite:///{database}", max_cameras=CAMERAS)
    took = asyncio.run(watch_all(ControlRoom(settings, Metrics())))
    assert sum(took) / len(took) < 0.001
    assert max(took) < 0.05
    connection = sqlite3.connect(database)
    (rows,) = connection.execute("SELECT count(*) FROM counts").fetchone()
    (size,) = connection.execute("SELECT sum(pgsize) FROM dbstat WHERE name = 'counts'").fetchone()
    connection.close()
    assert rows == 2 * CAMERAS * FRAMES
    assert size / rows < BYTES_PER_COUNT
