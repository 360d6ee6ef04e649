"""The drawn cameras of `make demo`: a valid camera file, whose zones have the areas that they were drawn with."""

import socket
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from uepnet.deploy import demo
from uepnet.model.camera_file import load_cameras
from uepnet.model.ground import GroundPlane


def test_the_drawn_places_are_cameras_with_true_areas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "FRAMES", 2)
    cameras = load_cameras(demo.write_cameras(tmp_path)).cameras
    assert set(cameras) == {*demo.PLACES, "Car park"}
    for name, place in demo.PLACES.items():
        entry = cameras[name]
        frames = sorted((tmp_path / str(entry.source)).iterdir())
        assert len(frames) == 2
        with Image.open(frames[0]) as frame:
            assert frame.size == (demo.WIDTH, demo.HEIGHT)
        assert entry.ground is not None
        plane = GroundPlane.of(entry.ground, "fractions", demo.WIDTH, demo.HEIGHT)
        near, far = place.depth
        for zone in entry.zones:
            corners = np.array(zone.polygon) * (demo.WIDTH, demo.HEIGHT)
            true = 0.4 * 2 * place.half_width * (far - near - 1)
            area = plane.area(corners)
            clipped = bool((np.array(zone.polygon) % 1 == 0).any())  # it reaches past the picture
            assert area is not None
            assert area == pytest.approx(true, rel=0.1) or (clipped and area < true), (name, zone.name)


def test_a_port_that_another_program_has_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Its service would get the demo's frames."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        assert demo.main(["--port", str(other.getsockname()[1])]) == 2
    assert "name another one with --port" in capsys.readouterr().err
