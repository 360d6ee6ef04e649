"""What is fuzzed: everything that parses what strangers send. A target takes bytes and lets only surprises escape."""

import io
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from PIL import Image

from uepnet.model.errors import UepnetError, ZoneError
from uepnet.model.image import FORMATS, load_image
from uepnet.model.zones import load_zones
from uepnet.service.errors import Refused
from uepnet.service.http.multipart import parse_form
from uepnet.service.http.protocol_codec import parse_request
from uepnet.training.data.dataset import READERS

ANNOTATIONS = {
    "coco": "a.json",
    "label-studio": "a.json",
    "csv": "a.csv",
    "cvat": "a.xml",
    "yolo": "labels/a.txt",
}
PLACE = "a.png"


def image(content: bytes) -> None:
    with suppress(UepnetError):
        load_image(content, 1_000_000, 4096)


def form(content: bytes) -> None:
    with suppress(Refused):
        parse_form(content, "multipart/form-data; boundary=b", 8)


def zones(content: bytes) -> None:
    with suppress(ZoneError):
        load_zones(content.decode("utf-8", "replace"))


def tensors(content: bytes) -> None:
    """The first byte says where the JSON ends, in 256ths."""
    length = None if not content or content[0] == 255 else str(len(content[1:]) * content[0] // 256)
    with suppress(Refused):
        parse_request(content[1:], length, 32)


def annotations(content: bytes) -> None:
    """The first byte chooses the format."""
    if not content:
        return
    name = sorted(ANNOTATIONS)[content[0] % len(ANNOTATIONS)]
    with tempfile.TemporaryDirectory() as folder, suppress(UepnetError):
        root = Path(folder)
        for picture in (root / PLACE, root / "images" / PLACE):
            picture.parent.mkdir(exist_ok=True)
            picture.write_bytes(_picture("PNG"))
        path = root / ANNOTATIONS[name]
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content[1:])
        for sample in READERS[name](root, "train"):
            assert sample.points.shape[1] == 2


TARGETS: dict[str, Callable[[bytes], None]] = {
    "image": image,
    "form": form,
    "zones": zones,
    "tensors": tensors,
    "annotations": annotations,
}


@cache
def _picture(kind: str) -> bytes:
    file = io.BytesIO()
    Image.effect_noise((24, 16), 60).convert("RGB").save(file, kind)
    return file.getvalue()


def seeds(target: str) -> Iterator[bytes]:
    """Good inputs from which fuzzing starts."""
    square = [[0, 0], [9, 0], [9, 9], [0, 9]]
    if target == "image":
        yield from map(_picture, FORMATS)
    elif target == "form":
        yield b'--b\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\nxyz\r\n--b--\r\n'
    elif target == "zones":
        yield json.dumps({"zones": [{"name": "gate", "polygon": square, "units": "pixels"}]}).encode()
    elif target == "tensors":
        tensor = {"name": "images", "shape": [1], "datatype": "BYTES", "data": ["/9j/4A=="]}
        yield b"\xff" + json.dumps({"id": "1", "inputs": [tensor], "outputs": [{"name": "count"}]}).encode()
        del tensor["data"]
        yield b"\xf0" + json.dumps({"inputs": [tensor]}).encode() + b"\x01\0\0\0x"
    else:
        yield from _annotation_seeds()


def _annotation_seeds() -> Iterator[bytes]:
    coco = {
        "images": [{"id": 1, "file_name": PLACE, "width": 24, "height": 16}],
        "annotations": [{"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 4, 4], "keypoints": [3, 3, 2]}],
        "categories": [{"id": 1, "name": "person"}],
    }
    value = {"x": 10, "y": 20, "keypointlabels": ["person"]}
    result = {"type": "keypointlabels", "original_width": 24, "original_height": 16, "value": value}
    studio = [{"data": {"image": PLACE}, "annotations": [{"result": [result]}]}]
    shape = '<points label="person" points="3,4;5,6"/><box label="person" xtl="1" ytl="2" xbr="3" ybr="4"/>'
    texts = {
        "coco": json.dumps(coco),
        "label-studio": json.dumps(studio),
        "csv": f"image,x,y\n{PLACE},3,4\n{PLACE},5.5,6\n",
        "cvat": f'<annotations><image id="0" name="{PLACE}" width="24" height="16">{shape}</image></annotations>',
        "yolo": "0 0.5 0.5 0.1 0.1\n0 0.2 0.3 0.1 0.1\n",
    }
    for number, name in enumerate(sorted(ANNOTATIONS)):
        yield bytes([number]) + texts[name].encode()
