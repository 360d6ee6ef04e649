"""Small made copies of every data set's layout, and the truth that a reader must find in them."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from uepnet.training.data.dataset import Sample, load

Points = NDArray[np.float64]  # continuous: pixel centres at +0.5
Truth = dict[str, dict[str, Points]]  # split -> image's name -> points
SIZE = (96, 64)


def picture(path: Path, seed: int = 0, size: tuple[int, int] = SIZE, orientation: int = 1) -> Path:
    """A picture of noise, its own for each seed, `size` as stored; with an EXIF orientation where it is not 1."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    exif = Image.Exif()
    if orientation != 1:
        exif[0x0112] = orientation
    Image.fromarray(pixels).save(path, exif=exif)
    return path


def crowd(seed: int, people: int | None = None) -> Points:
    """People at pixel centres inside the frame."""
    rng = np.random.default_rng((seed, 7))
    number = int(rng.integers(1, 9)) if people is None else people
    return rng.integers((0, 0), SIZE, (number, 2)).astype(np.float64) + 0.5


def mat(path: Path, variable: str, points: Points) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, {variable: points + 0.5})  # MATLAB counts pixels from 1


def text(path: Path, rows: NDArray[np.float64]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(" ".join(f"{value:g}" for value in row) + "\n" for row in rows))


def shanghaitech(part: str, final: str = "_final", truth_folder: str = "ground_truth") -> Callable[[Path], Truth]:
    def make(root: Path) -> Truth:
        truth: Truth = {}
        for split, numbers in {"train": (1, 2, 10), "test": (1, 2)}.items():
            data = root / f"part_{part}{final}" / f"{split}_data"
            for number in numbers:
                seed = number + (100 if split == "test" else 0)
                name, points = f"IMG_{number}", crowd(seed)
                picture(data / "images" / f"{name}.jpg", seed)
                info = np.empty((1, 1), object)
                info[0, 0] = {"location": points + 0.5, "number": len(points)}
                path = data / truth_folder / f"GT_{name}.mat"
                path.parent.mkdir(parents=True, exist_ok=True)
                savemat(path, {"image_info": info}, do_compression=True)
                truth.setdefault(split, {})[f"{name}.jpg"] = points
        return truth

    return make


def ucf_cc_50(root: Path) -> Truth:
    truth = {f"{number}.jpg": crowd(number) for number in range(1, 51)}
    for number, (name, points) in enumerate(truth.items(), start=1):
        picture(root / name, number)
        mat(root / f"{number}_ann.mat", "annPoints", points)
    return {"train": truth}


def ucf_qnrf(root: Path) -> Truth:
    truth: Truth = {}
    for split, number in (("train", 1), ("train", 2), ("test", 1)):
        folder, name = root / split.title(), f"img_{number:04}"
        picture(folder / f"{name}.jpg", number + len(split))
        points = crowd(number) + (1000 if split == "test" else 0)  # far outside the frame: kept
        mat(folder / f"{name}_ann.mat", "annPoints", points)
        truth.setdefault(split, {})[f"{name}.jpg"] = points
    return truth


def worldexpo10(root: Path) -> Truth:
    """The region is the right half: columns 48 and on. Frames of the test split lie in folders by scene."""
    truth: Truth = {}
    for split, scene, people in (("train", "100060", 0), ("train", "100060", 6), ("test", "104207", 9)):
        name = f"{scene}_K24-01-S2010_clip{people}"
        folder = root / f"{split}_frame" / (scene if split == "test" else "")
        picture(folder / f"{name}.jpg", people)
        points = crowd(people, people)
        mat(root / f"{split}_label" / scene / f"{name}.mat", "point_position", points)
        corners = {"X": [49, 96, 96, 49], "Y": [1, 1, 64, 64]}  # 1-based, as MATLAB draws them
        roi = {f"maskVertices{axis}Coordinates": np.array([values], float).T for axis, values in corners.items()}
        savemat(root / f"{split}_label" / scene / "roi.mat", roi)
        truth.setdefault(split, {})[f"{name}.jpg"] = points[points[:, 0] >= 48]
    return truth


def jhu_crowd(root: Path) -> Truth:
    truth: Truth = {}
    for seed, split in enumerate(("train", "train", "val", "test")):
        name, points = f"{seed:04}", crowd(seed, 0 if seed == 1 else 4)
        picture(root / split / "images" / f"{name}.jpg", seed)
        rows = np.hstack([points - 0.5, np.tile([12, 14, 1, 0], (len(points), 1))])
        text(root / split / "gt" / f"{name}.txt", rows)
        truth.setdefault(split, {})[f"{name}.jpg"] = points
    return truth


def nwpu(root: Path, mats: bool = False) -> Truth:
    truth: Truth = {}
    for number, split in enumerate(("train", "train", "val", "test"), start=1):
        name, points = f"{number:04}", crowd(number, 0 if number == 1 else 5)
        picture(root / "images" / f"{name}.jpg", number)
        if mats:
            mat(root / "mats" / f"{name}.mat", "annPoints", points)
        else:
            path = root / "jsons" / f"{name}.json"
            path.parent.mkdir(exist_ok=True)
            path.write_text(json.dumps({"img_id": f"{name}.jpg", "points": (points - 0.5).tolist()}))
        with (root / f"{split}.txt").open("a") as file:
            file.write(f"{name} 1 2\n")  # number, luminance, density
        truth.setdefault(split, {})[f"{name}.jpg"] = points
    return truth


def mall(root: Path, released: bool = False) -> Truth:
    truth: Truth = {}
    frames = np.empty((1, 802), object)
    for number in range(1, 803):
        points = crowd(number)
        frames[0, number - 1] = {"loc": points + 0.5, "count": len(points)}
        if number not in (1, 2, 800, 801, 802):  # the split goes by the frame's number, whichever are there
            continue
        name = f"seq_{number:06}"
        picture(root / "frames" / f"{name}.jpg", number)
        if not released:
            text(root / "points" / f"{name}.txt", points + 0.5)
        truth.setdefault("train" if number <= 800 else "test", {})[f"{name}.jpg"] = points
    if released:
        savemat(root / "mall_gt.mat", {"frame": frames}, do_compression=True)
    return truth


def listed(root: Path) -> Truth:
    truth: Truth = {}
    for seed, split in enumerate(("train", "train", "test")):
        name, points = f"scene{seed}/{seed}.jpg", crowd(seed)
        picture(root / name, seed)
        text(root / f"scene{seed}" / f"{seed}.txt", points - 0.5)
        with (root / f"{split}.list").open("a") as file:
            file.write(f"{name} scene{seed}/{seed}.txt\n")
        truth.setdefault(split, {})[name] = points
    return truth


def coco(root: Path) -> Truth:
    """Boxes, bodies with keypoints, a picture with nobody, and a dog that is no person."""
    truth: Truth = {}
    for split, offset in (("train", 0), ("test", 10)):
        images, annotations = [], []
        for number in range(offset, offset + 3):
            name, points = f"{number}.jpg", crowd(number, number - offset)
            picture(root / "images" / name, number)
            images.append({"id": number, "file_name": f"images/{name}", "width": SIZE[0], "height": SIZE[1]})
            truth.setdefault(split, {})[f"images/{name}"] = points
            for index, (x, y) in enumerate(points):
                place: dict[str, object] = {"bbox": [x - 3, y - 2, 6, 4]}
                if index == 1:  # the first keypoint is not labelled
                    place = {"keypoints": [0, 0, 0, x - 0.5, y - 0.5, 2], "bbox": [0, 0, 9, 9]}
                annotations.append({"image_id": number, "category_id": 1, **place})
        annotations.append({"image_id": offset, "category_id": 2, "bbox": [0, 0, 5, 5]})
        categories = [{"id": 1, "name": "person"}, {"id": 2, "name": "dog"}]
        path = root / "annotations" / f"instances_{split}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return truth


def cvat(root: Path) -> Truth:
    """CVAT for images 1.1: a picture with nobody, one with a shape of each kind, one with points alone."""
    truth: Truth = {}
    lines = ["<?xml version='1.0' encoding='utf-8'?>", "<annotations><version>1.1</version>"]
    for number in range(3):
        name, points = f"{number}.jpg", crowd(number, 3 * number)
        picture(root / "images" / name, number)
        truth.setdefault("train", {})[name] = points
        lines.append(f'<image id="{number}" name="{name}" width="{SIZE[0]}" height="{SIZE[1]}">')
        boxed, rounded, dots = points[:1], points[1:2], points[2:]
        for x, y in boxed:
            lines.append(
                f'<box label="head" xtl="{x - 2}" ytl="{y - 3}" xbr="{x + 2}" ybr="{y + 3}" z_order="0"></box>'
            )
        for x, y in rounded:
            lines.append(f'<ellipse label="head" cx="{x}" cy="{y}" rx="3" ry="4" rotation="20"/>')
        if len(dots):
            pairs = ";".join(f"{x:.2f},{y:.2f}" for x, y in dots)
            lines.append(f'<points label="head" source="manual" occluded="0" points="{pairs}"></points>')
        lines.append("</image>")
    (root / "annotations.xml").write_text("\n".join([*lines, "</annotations>"]))
    return truth


def label_studio(root: Path) -> Truth:
    """Label Studio JSON: percent of the picture; file names have the prefix that an upload gets."""
    truth: Truth = {}
    tasks = []
    for number in range(3):
        name, points = f"{number}.jpg", crowd(number, 2 * number)
        picture(root / "images" / name, number)
        truth.setdefault("train", {})[f"upload/1/0a1b2c3{number}-{name}"] = points
        regions = []
        for index, (x, y) in enumerate(points):
            place = {"x": 100 * x / SIZE[0], "y": 100 * y / SIZE[1], "width": 0.4, "keypointlabels": ["Head"]}
            if index == 1:
                wide, high = 6.0, 8.0
                corner = {"x": place["x"] - wide / 2, "y": place["y"] - high / 2}
                place = {**corner, "width": wide, "height": high, "rotation": 0, "rectanglelabels": ["Head"]}
            regions.append({"original_width": SIZE[0], "original_height": SIZE[1], "image_rotation": 0, "value": place})
        done = [{"id": 1, "was_cancelled": False, "result": regions}]
        tasks.append({"id": number, "annotations": done, "data": {"image": f"/data/upload/1/0a1b2c3{number}-{name}"}})
    (root / "export.json").write_text(json.dumps(tasks))
    return truth


def yolo(root: Path) -> Truth:
    truth: Truth = {}
    (root / "data.yaml").parent.mkdir(parents=True, exist_ok=True)
    (root / "data.yaml").write_text("names:\n  0: person\n  1: dog\n")
    for split, numbers in {"train": (0, 1, 2), "test": (3,)}.items():
        for number in numbers:
            name, points = f"{number}.jpg", crowd(number, number)
            picture(root / "images" / split / name, number)
            rows = [f"0 {x / SIZE[0]} {y / SIZE[1]} 0.1 0.1\n" for x, y in points]
            path = root / "labels" / split / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(rows))
            truth.setdefault(split, {})[name] = points
    return truth


def table(root: Path, images: int = 3) -> Truth:
    """points.csv beside a folder of pictures; the first has nobody in it."""
    truth = {f"{number}.png": crowd(number, number) for number in range(images)}
    root.mkdir(parents=True, exist_ok=True)
    with (root / "points.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["image", "x", "y"])
        for number, (name, points) in enumerate(truth.items()):
            picture(root / "images" / name, number)
            rows.writerows([[name, x, y] for x, y in points] or [[name, "", ""]])
    return {"train": truth}


RELEASES: dict[str, Callable[[Path], Truth]] = {
    "shanghaitech-a": shanghaitech("A"),
    "shanghaitech-b": shanghaitech("B", final="", truth_folder="ground-truth"),
    "ucf-cc-50": ucf_cc_50,
    "ucf-qnrf": ucf_qnrf,
    "worldexpo10": worldexpo10,
    "jhu-crowd": jhu_crowd,
    "nwpu": nwpu,
    "mall": mall,
    "list": listed,
    "coco": coco,
    "csv": table,
    "cvat": cvat,
    "label-studio": label_studio,
    "yolo": yolo,
}


def coco_file(folder: Path, labels: list[str], used: list[int], **content: object) -> Path:
    annotations = [{"image_id": 1, "category_id": number, "bbox": [number, 0, 2, 2]} for number in used]
    categories = [{"id": number, "name": label} for number, label in enumerate(labels)]
    whole = {"images": [{"id": 1, "file_name": "a.png"}], "annotations": annotations, "categories": categories}
    path = folder / "result.json"
    path.write_text(json.dumps(whole | content))
    return path


def only(dataset: str, root: Path) -> Sample:
    (sample,) = load(dataset, root)
    return sample
