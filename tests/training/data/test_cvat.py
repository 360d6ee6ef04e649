"""CVAT for images: every shape is read, or refused in one sentence that helps."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from support import releases
from support.releases import only

from uepnet.model.errors import DataError
from uepnet.training.data.dataset import load

WIDTH, HEIGHT = releases.SIZE


def cvat_file(folder: Path, shapes: str, name: str = "a.png", size: tuple[int, int] = releases.SIZE) -> Path:
    path = folder / "annotations.xml"
    image = f'<image id="0" name="{name}" width="{size[0]}" height="{size[1]}">{shapes}</image>'
    path.write_text(f"<annotations><version>1.1</version>{image}</annotations>")
    return path


def test_every_shape_of_cvat_is_a_person_at_its_centre(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(
        tmp_path,
        '<points label="head" points="1.5,2.5;3.0,4.0"/><box label="head" xtl="10" ytl="10" xbr="20" ybr="30"/>'
        '<ellipse label="head" cx="5" cy="6" rx="2" ry="3"/><polygon label="head" points="0,0;8,0;8,4;0,4"/>'
        '<mask label="head" rle="1" left="20" top="30" width="4" height="6"/>'
        '<skeleton label="head"><points label="nose" outside="1" points="9,9"/>'
        '<points label="eye" outside="0" points="7,8"/></skeleton>',
    )
    points = only("cvat", tmp_path).points.tolist()
    assert points == [[1.5, 2.5], [3, 4], [15, 20], [5, 6], [4, 2], [22, 33], [7, 8]]


def test_points_follow_a_picture_that_was_made_smaller_and_no_picture_of_another_shape(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(tmp_path, '<points label="head" points="192,128"/>', size=(10 * WIDTH, 10 * HEIGHT))
    assert only("cvat", tmp_path).points == pytest.approx(np.array([[19.2, 12.8]]))
    cvat_file(tmp_path, '<points label="head" points="1,1"/>', size=(HEIGHT, WIDTH))
    with pytest.raises(DataError, match="another picture, or was turned"):
        _ = only("cvat", tmp_path).points


def test_a_cvat_image_without_a_size_is_taken_as_it_is(tmp_path: Path) -> None:
    releases.picture(tmp_path / "a.png")
    cvat_file(tmp_path, '<points label="head" points="3,4"/>', size=(0, 0))
    assert only("cvat", tmp_path).points.tolist() == [[3, 4]]


BOMB = '<!DOCTYPE a [<!ENTITY x "xxxxxxxxxx"><!ENTITY y "&x;&x;&x;&x;&x;&x;&x;&x;">]><annotations>&y;</annotations>'


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (BOMB, "document type declaration"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><annotations/>', "document type declaration"),
        ("<annotations><track id='0'><box frame='0'/></track></annotations>", "CVAT for video"),
        ("<annotation><object/></annotation>", "first element is annotation,"),
        ("<annotations><image", "not valid XML"),
        ("<annotations><image id='0'/></annotations>", "image without a name"),
        ("<annotations><image name='a.png'/></annotations>", "not one shape"),
        ("<annotations>" + "<a>" * 40 + "</a>" * 40 + "</annotations>", "nests its elements"),
        ("<annotations><image name='a'/><image name='a'/></annotations>", "lists the image a twice"),
    ],
)
def test_a_file_that_is_not_cvat_for_images_says_what_it_is(content: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "annotations.xml"
    path.write_text(content)
    with pytest.raises(DataError, match=says) as refusal:
        load("cvat", tmp_path)
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize(
    "shape", ['<box label="a" xtl="1"/>', '<points label="a" points="1;2"/>', '<ellipse label="a"/>']
)
def test_a_broken_shape_spoils_its_own_picture_alone(shape: str, tmp_path: Path) -> None:
    cvat_file(tmp_path, shape)
    with pytest.raises(DataError, match=r"a\.png has a <"):
        _ = only("cvat", tmp_path).points


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'<?xml version="1.0" encoding="klingon"?><annotations/>', "names an encoding that is not known"),
        ("<annotations><image name='Br\u00fccke.png'/></annotations>".encode("latin-1"), "its text is not UTF-8"),
    ],
)
def test_xml_in_another_encoding_than_it_says_is_explained(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "annotations.xml").write_bytes(content)
    with pytest.raises(DataError, match=says):
        load("cvat", tmp_path)


def test_a_zip_archive_is_to_be_unpacked(tmp_path: Path) -> None:
    releases.cvat(tmp_path / "task")
    archive = shutil.make_archive(str(tmp_path / "task"), "zip", tmp_path / "task")
    with pytest.raises(DataError, match="unpack it"):
        load("cvat", Path(archive))
