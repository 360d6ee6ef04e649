"""The web page in a real browser: Debian's chromium, driven by selenium."""

import csv
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from selenium.webdriver import ActionChains
from selenium.webdriver.common.actions.action_builder import ActionBuilder
from selenium.webdriver.common.actions.interaction import POINTER_TOUCH
from selenium.webdriver.common.actions.pointer_input import PointerInput
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from support.browser import Page
from support.scenes import amid_nobody
from support.servers import HeldRuntime, Running, encoded, eventually, grey

from uepnet.model.runtime import BUNDLED
from uepnet.model.zones import load_zones

pytestmark = [pytest.mark.system, pytest.mark.filterwarnings("ignore::ResourceWarning")]
Serve = Callable[..., Running]


@pytest.fixture
def photo(tmp_path: Path) -> Path:
    """Light on the left, dark on the right."""
    array = grey(800, 480, 20)
    array[:, :400] = np.random.default_rng(4).integers(120, 255, (480, 400, 3))
    path = tmp_path / "crowd, left.jpg"
    path.write_bytes(encoded(array, "JPEG"))
    return path


def shown(count: float) -> str:
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}"


def pixel(page: Page, x: float, y: float) -> list[int]:
    script = """
        const canvas = document.getElementById("canvas");
        const [x, y] = [arguments[0] * canvas.width, arguments[1] * canvas.height].map(Math.floor);
        return [...canvas.getContext("2d").getImageData(x, y, 1, 1).data].slice(0, 3);
    """
    return list(page.run(script, x, y))


def test_an_uploaded_picture_is_counted_and_overlaid(page: Page, service: Running, photo: Path) -> None:
    page.open(service)
    assert page.at("drop").is_displayed()
    page.choose(photo)
    page.counted()
    answer = service.count(photo.read_bytes(), "image/jpeg").json()
    assert page.text("count") == shown(answer["count"])
    assert f"{shown(answer['range']['low'])} to {shown(answer['range']['high'])} (90 %)" in page.text("range")
    assert "800 × 480" in page.text("facts")
    assert not page.at("drop").is_displayed()

    def look(view: str) -> tuple[list[int], list[int]]:
        page.run(f"document.querySelector('input[value={view}]').click()")
        return pixel(page, 0.2, 0.5), pixel(page, 0.9, 0.5)

    bare, overlaid, heat = look("image"), look("overlay"), look("heat")
    assert max(bare[1]) < 40  # the dark side of the photo as it is
    assert bare[0] != overlaid[0] != heat[0]
    assert heat[0][0] > heat[1][0] + 50  # warm where people are, cold where few are
    assert page.complaints() == []


def test_the_bundled_model_counts_a_crowd_on_the_page(page: Page, serve: Serve, tmp_path: Path) -> None:
    """It counts at a size of its own: its map is gathered into the image's cells, and around the crowd nobody is."""
    photo = tmp_path / "crowd.png"
    photo.write_bytes(encoded(amid_nobody(1024, 768)))
    service = serve(model=BUNDLED)
    page.open(service)
    page.choose(photo)
    page.counted()
    assert page.text("count") == shown(service.count(photo.read_bytes()).json()["count"])
    assert pixel(page, 0.4, 0.5) != pixel(page, 0.95, 0.95)
    assert page.complaints() == []


def test_a_zone_is_drawn_corner_by_corner_and_counted(page: Page, service: Running, photo: Path) -> None:
    page.open(service)
    page.choose(photo)
    page.counted()
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9), (0.1, 0.9))
    page.click("finish")
    page.zones_counted()
    ((name, count),) = page.zone_counts()
    zones = load_zones(page.download("save-zones", "zones.json"))
    assert [zone.name for zone in zones] == [name] == ["Zone 1"]
    assert zones[0].units == "fractions"
    assert np.allclose(zones[0].polygon, [(0.1, 0.1), (0.4, 0.1), (0.4, 0.9), (0.1, 0.9)], atol=0.01)
    files = {"image": photo.read_bytes(), "zones": (None, (page.downloads / "zones.json").read_bytes())}
    assert count == shown(service.http.post("/v1/count", files=files).json()["zones"][0]["count"])


def test_a_zone_is_dragged_as_a_rectangle_renamed_changed_and_removed(
    page: Page, service: Running, photo: Path
) -> None:
    page.open(service)
    page.choose(photo)
    page.counted()
    page.click("draw")
    page.run("document.getElementById('picture').scrollIntoView({block: 'center'})")
    svg = page.at("zones")
    drag = ActionChains(page.driver, duration=30).move_to_element_with_offset(svg, *page.point(0.2, 0.2))
    drag.click_and_hold().move_to_element_with_offset(svg, *page.point(0.6, 0.8)).release().perform()
    page.zones_counted()
    before = page.zone_counts()[0][1]
    name = page.driver.find_element(By.CSS_SELECTOR, "#zone-list input")
    name.send_keys(Keys.CONTROL, "a")
    name.send_keys("Gate, west\n")
    eventually(lambda: page.zone_counts() == [("Gate, west", before)])
    # A corner dragged to the middle of the dark side makes the zone larger, and its count with it.
    page.run("document.getElementById('picture').scrollIntoView({block: 'center'})")
    grab = ActionChains(page.driver, duration=30).move_to_element_with_offset(svg, *page.point(0.2, 0.2))
    grab.click_and_hold().move_to_element_with_offset(svg, *page.point(0.02, 0.02)).release().perform()
    eventually(lambda: page.zone_counts()[0][1] not in (before, "", "…"))
    page.driver.find_element(By.CSS_SELECTOR, "#zone-list button").click()
    eventually(lambda: page.zone_counts() == [])


def test_a_name_being_typed_survives_a_new_count(page: Page, serve: Serve, held: HeldRuntime, photo: Path) -> None:
    server = serve(held)
    page.open(server)
    page.choose(photo)
    page.counted()
    held.go.clear()
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9))
    page.click("finish")
    page.driver.switch_to.active_element.send_keys("Pla")  # the new zone's name is selected
    held.go.set()
    page.zones_counted()
    page.driver.switch_to.active_element.send_keys("tform\n")
    assert page.zone_counts()[0][0] == "Platform"
    assert [zone.name for zone in load_zones(page.download("save-zones", "zones.json"))] == ["Platform"]


def test_a_zone_that_crosses_itself_is_told(page: Page, service: Running, photo: Path) -> None:
    page.open(service)
    page.choose(photo)
    page.counted()
    page.draw((0.1, 0.1), (0.9, 0.9), (0.9, 0.1), (0.1, 0.9))
    page.click("finish")
    eventually(lambda: "crosses" in page.text("error-text"))
    assert page.zone_counts() == [("Zone 1", "not counted")]


def test_results_can_be_taken_home(page: Page, service: Running, photo: Path) -> None:
    page.open(service)
    page.choose(photo)
    page.counted()
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9))
    page.click("finish")
    page.zones_counted()
    answer = json.loads(page.download("save-json", "crowd, left.json").read_text())
    assert answer["image"] == "crowd, left.jpg"
    assert answer["count"] == service.count(photo.read_bytes(), "image/jpeg").json()["count"]
    rows = list(csv.reader(page.download("save-csv", "crowd, left.csv").open()))
    assert rows[0] == ["image", "area", "count", "low", "high"]
    assert rows[1][:2] == ["crowd, left.jpg", "whole image"]
    assert float(rows[1][2]) == answer["count"]
    assert rows[2][1:3] == ["Zone 1", str(answer["zones"][0]["count"])]
    picture = Image.open(page.download("save-png", "crowd, left-counted.png"))
    assert picture.width == 800
    assert picture.height > 480


def test_zones_of_a_file_are_loaded(page: Page, service: Running, photo: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    corners = [[0, 0], [400, 0], [400, 480], [0, 480]]
    file.write_text(json.dumps({"zones": [{"name": "left", "units": "pixels", "polygon": corners}]}))
    page.open(service)
    page.choose(photo)
    page.counted()
    page.at("zones-file").send_keys(str(file))
    page.zones_counted()
    assert page.zone_counts()[0][0] == "left"


def test_a_file_that_is_no_image_is_told(page: Page, service: Running, tmp_path: Path, photo: Path) -> None:
    bad = tmp_path / "notes.txt"
    bad.write_text("no image")
    page.open(service)
    page.choose(bad)
    eventually(lambda: "not a whole image" in page.text("error-text"))
    assert page.at("drop").is_displayed()
    page.choose(photo)
    page.counted()
    assert not page.at("error").is_displayed()


def test_pictures_can_be_pasted_and_dropped(page: Page, service: Running, photo: Path) -> None:
    script = """
        const bytes = Uint8Array.from(arguments[0]);
        const transfer = new DataTransfer();
        transfer.items.add(new File([bytes], "given.jpg", {type: "image/jpeg"}));
        const event = arguments[1] === "paste"
            ? new ClipboardEvent("paste", {clipboardData: transfer, bubbles: true})
            : new DragEvent("drop", {dataTransfer: transfer, bubbles: true, cancelable: true});
        document.body.dispatchEvent(event);
    """
    for way in ("paste", "drop"):
        page.open(service)
        page.run(script, list(photo.read_bytes()), way)
        page.counted()
        assert page.text("count") == shown(service.count(photo.read_bytes(), "image/jpeg").json()["count"])


def test_a_count_can_be_stopped(page: Page, serve: Serve, held: HeldRuntime, photo: Path) -> None:
    server = serve(held)
    page.open(server)
    held.go.clear()
    page.choose(photo)
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 1)
    page.click("stop")
    eventually(lambda: page.at("drop").is_displayed())
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 0)
    held.go.set()
    page.choose(photo)
    page.counted()


def test_the_others_are_counted_while_somebody_looks_at_one_of_several_pictures(
    page: Page, serve: Serve, held: HeldRuntime, photo: Path, tmp_path: Path
) -> None:
    files = [tmp_path / name for name in ("one.png", "two.png", "broken.png", "four.png")]
    for value, path in enumerate(files):
        path.write_bytes(b"no image" if path.stem == "broken" else encoded(grey(160, 96, 40 * value + 40)))
    server = serve(held)
    page.open(server)
    held.go.clear()
    page.at("file").send_keys("\n".join(str(path) for path in files))
    eventually(lambda: server.metric("uepnet_requests_in_flight") == 1)
    page.run("document.querySelectorAll('#files button')[1].click()")
    held.go.set()
    eventually(lambda: page.text("progress").lower() == "4 of 4")
    page.counted()
    counts = [shown(server.count(path.read_bytes()).json()["count"]) for path in files if path.stem != "broken"]
    assert page.text("count") == counts[1]
    assert page.driver.find_element("css selector", "#files [aria-current]").text == "two.png"
    told = page.run("return [...document.querySelectorAll('#files output')].map((one) => one.textContent)")
    assert told == [*counts[:2], "not counted", counts[2]]
    assert "image" in page.run("return document.querySelector('#files p').textContent")


def test_a_zone_can_be_drawn_while_the_next_picture_is_counted(
    page: Page, serve: Serve, held: HeldRuntime, photo: Path, tmp_path: Path
) -> None:
    server = serve(held)
    page.open(server)
    page.choose(photo)
    page.counted()
    dark = tmp_path / "dark.png"
    dark.write_bytes(encoded(grey(640, 480, 5)))
    held.go.clear()
    page.choose(dark)
    eventually(lambda: page.text("count") == "–")  # never the last picture's count beside this one
    assert not page.at("save-csv").is_enabled()
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9))
    page.click("finish")
    held.go.set()
    page.counted()
    page.zones_counted()
    assert page.text("count") == shown(server.count(dark.read_bytes()).json()["count"])
    assert not page.at("error").is_displayed()


def test_zones_of_a_count_that_was_stopped_are_told_as_such(
    page: Page, serve: Serve, held: HeldRuntime, photo: Path
) -> None:
    page.open(serve(held))
    page.choose(photo)
    page.counted()
    before = page.text("count")
    held.go.clear()
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9))
    page.click("finish")
    page.click("stop")
    eventually(lambda: page.zone_counts() == [("Zone 1", "not counted")])
    assert page.text("count") == before


def test_a_format_that_the_browser_cannot_show_is_counted_all_the_same(
    page: Page, serve: Serve, held: HeldRuntime, tmp_path: Path
) -> None:
    scan = tmp_path / "scan.tiff"
    scan.write_bytes(encoded(grey(320, 240, 99), "TIFF"))
    page.open(serve(held))
    held.go.clear()
    page.choose(scan)
    eventually(lambda: page.at("busy").is_displayed())
    held.go.set()
    page.counted()
    assert "cannot show" in page.text("no-preview")


def test_a_body_past_the_limit_is_told(page: Page, serve: Serve, tmp_path: Path) -> None:
    large = tmp_path / "large.bmp"
    large.write_bytes(encoded(grey(4000, 1500), "BMP"))
    page.open(serve(max_body_bytes=1_000_000))
    page.choose(large)
    eventually(lambda: "at most 1000000 bytes" in page.text("error-text"))


def test_the_key_is_asked_for_and_kept_for_the_tab(page: Page, serve: Serve, photo: Path) -> None:
    server = serve(api_keys="the-page-key")
    page.open(server)
    eventually(lambda: page.at("key-dialog").get_attribute("open"))
    page.at("key").send_keys("wrong-key-here\n")
    eventually(lambda: page.at("key-dialog").get_attribute("open") and not page.at("key").get_attribute("value"))
    page.at("key").send_keys("the-page-key\n")
    eventually(lambda: "toy 1 on cpu" in page.text("model"))
    page.choose(photo)
    page.counted()
    page.open(server)
    eventually(lambda: "toy 1 on cpu" in page.text("model"))
    assert not page.at("key-dialog").get_attribute("open")
    page.open(server, "/docs")
    eventually(lambda: "/v1/count" in page.text("docs"))


@pytest.mark.parametrize(("width", "height"), [(1300, 950), (390, 844), (320, 640)])
def test_the_page_fits_any_screen_and_both_colour_schemes(
    page: Page, service: Running, photo: Path, width: int, height: int
) -> None:
    page.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=width < 800
    )
    backgrounds = set()
    for scheme in ("light", "dark"):
        page.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        page.open(service)
        page.choose(photo)
        page.counted()
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        backgrounds.add(page.run("return getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 2


def test_a_zone_is_tapped_on_a_phone(page: Page, service: Running, photo: Path) -> None:
    page.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=2, mobile=True)
    page.command("Emulation.setTouchEmulationEnabled", enabled=True)
    page.open(service)
    page.choose(photo)
    page.counted()
    page.click("draw")
    frame = "const {top, bottom} = document.getElementById('picture').getBoundingClientRect();"
    assert page.run(frame + "return top >= 0 && bottom <= innerHeight")  # though the button is far below it
    finger = ActionBuilder(page.driver, mouse=PointerInput(POINTER_TOUCH, "finger"), duration=30)
    for corner in ((0.1, 0.1), (0.4, 0.15), (0.4, 0.9), (0.1, 0.9)):
        finger.pointer_action.move_to(page.at("zones"), *page.point(*corner)).pointer_down().pointer_up()
    finger.perform()
    page.click("finish")
    page.zones_counted()
    saved = load_zones(page.download("save-zones", "zones.json"))
    assert len(saved[0].polygon) == 4


def test_nothing_comes_from_outside(page: Page, service: Running, photo: Path) -> None:
    for path in ("/", "/alerts", "/photographs", "/docs"):
        page.open(service, path)
        time.sleep(0.5)
        loaded = page.run("return performance.getEntriesByType('resource').map(({name}) => name)")
        assert loaded
        assert all(url.startswith(service.url) for url in loaded)
        assert page.complaints() == []
        page.run("const i = new Image(); i.src = 'https://example.org/x.png'; document.body.append(i)")
        eventually(lambda: any("Content Security Policy" in text for text in page.complaints()))


def test_the_docs_show_every_operation(page: Page, service: Running) -> None:
    page.open(service, "/docs")
    paths = service.http.get("/openapi.json").json()["paths"]
    eventually(lambda: page.driver.find_elements(By.CSS_SELECTOR, ".docs details"))
    assert len(page.driver.find_elements(By.CSS_SELECTOR, ".docs details")) == sum(len(one) for one in paths.values())
    assert "curl --data-binary @crowd.jpg" in page.text("docs")
