"""What replicas tell each other through the database: counts, the newest state of each camera, settings."""

import time

from sqlalchemy import Connection, delete, insert
from sqlalchemy.dialects import postgresql, sqlite

from uepnet.model.cameras import CameraSettings
from uepnet.service.cameras.database import Database, cameras, latest, observations
from uepnet.service.cameras.writer import Task
from uepnet.service.schemas import Camera


def queue_observation(connection: Connection, content: str) -> None:
    connection.execute(insert(observations).values(content=content))


def store_latest(database: Database, camera: Camera) -> Task:
    row = {"camera": camera.camera, "time": round(1000 * camera.time), "content": camera.model_dump_json()}

    def task(connection: Connection) -> None:
        statement = (postgresql if database.shared else sqlite).insert(latest).values(row)
        newer = statement.excluded.time > latest.c.time
        connection.execute(statement.on_conflict_do_update(index_elements=["camera"], set_=row, where=newer))

    return task


def store_settings(database: Database, name: str, settings: CameraSettings | None) -> Task:
    def task(connection: Connection) -> None:
        connection.execute(delete(cameras).where(cameras.c.camera == name))
        if settings is not None:
            row = {"camera": name, "settings": settings.model_dump_json(), "changed": int(1000 * time.time())}
            connection.execute(insert(cameras).values(row))

    return task
