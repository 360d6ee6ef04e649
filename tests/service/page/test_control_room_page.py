"""The control room in a real browser: the wall, a camera's page, alerts; with the mouse and with keys alone."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select
from support.browser import Page
from support.servers import SOON, Running, encoded, eventually, grey

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium: deploy/install-system-tests"),
]
Serve = Callable[..., Running]
KEY = "the-admin-key"
CAMERAS = """cameras:
  Gleis 3 Süd:
    units: fractions
    keep_picture: true
    smooth_seconds: 0
    zones: [{name: left, polygon: [[0, 0], [0.5, 0], [0.5, 1], [0, 1]]}]
    limits: [{people: 300}]
  quiet: {}
"""


@pytest.fixture
def server(serve: Serve, tmp_path: Path) -> Running:
    (tmp_path / "cameras.yml").write_text(CAMERAS)
    history = f"sqlite:///{tmp_path / 'history.sqlite'}"
    started = serve(cameras=tmp_path / "cameras.yml", history=history, admin_key=KEY)
    eventually(lambda: started.state.room.leads)
    return started


def show(server: Running, value: int, camera: str = "Gleis 3 Süd") -> float:
    url = f"{server.url}/v1/count"
    headers = {"Content-Type": "image/png"}
    answer = httpx.post(
        url, params={"camera": camera}, content=encoded(grey(160, 96, value)), headers=headers, timeout=SOON
    )
    return float(answer.raise_for_status().json()["count"])


def cards(page: Page) -> dict[str, str]:
    found = page.driver.find_elements(By.CSS_SELECTOR, ".camera")
    return {str(card.get_attribute("data-camera")): card.text for card in found}


def settings(server: Running) -> dict[str, Any]:
    return dict(server.http.get("/v1/cameras/Gleis 3 Süd").json()["settings"])


def test_the_wall_shows_every_camera_and_how_it_stands(page: Page, server: Running) -> None:
    page.open(server, "/")
    eventually(lambda: set(cards(page)) == {"Gleis 3 Süd", "quiet"})
    assert "No frame yet" in cards(page)["quiet"]
    count = show(server, 20)
    eventually(lambda: f"{round(count)}" in cards(page)["Gleis 3 Süd"])
    assert "Below all limits" in cards(page)["Gleis 3 Süd"]
    assert "left" in cards(page)["Gleis 3 Süd"]
    eventually(lambda: page.run("return [...document.images].some((one) => one.naturalWidth === 160)"))
    show(server, 255)
    eventually(lambda: "Above the limit of 300" in cards(page)["Gleis 3 Süd"])
    eventually(lambda: "limit 300" in page.text("open-alerts"))
    assert page.text("alert-number") == "1"
    assert page.complaints() == []


def test_only_pictures_in_sight_are_asked_for(page: Page, serve: Serve, tmp_path: Path) -> None:
    names = [f"camera {number:02}" for number in range(24)]
    (tmp_path / "many.yml").write_text("cameras:\n" + "".join(f"  {name}: {{keep_picture: true}}\n" for name in names))
    server = serve(cameras=tmp_path / "many.yml", history="off")
    for name in names:
        show(server, 200, name)
    page.command("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    page.open(server, "/")
    shown = "return [...document.querySelectorAll('.camera')].map((card) => !card.querySelector('img').hidden)"
    eventually(lambda: page.run(shown)[:2] == [True, True])
    assert sum(page.run(shown)) < 8
    page.run("scrollTo(0, document.documentElement.scrollHeight)")
    eventually(lambda: page.run(shown)[-1])


def test_a_lost_server_is_obvious_and_comes_back(page: Page, server: Running) -> None:
    page.open(server, "/")
    eventually(lambda: cards(page))
    assert not page.at("lost").is_displayed()
    page.command("Network.enable")
    page.command("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=0, uploadThroughput=0)
    server.state.cameras.end_streams()
    eventually(lambda: page.at("lost").is_displayed())
    page.command(
        "Network.emulateNetworkConditions", offline=False, latency=0, downloadThroughput=-1, uploadThroughput=-1
    )
    eventually(lambda: not page.at("lost").is_displayed())


def test_a_zone_and_a_limit_are_drawn_and_saved_with_the_admin_key(page: Page, server: Running) -> None:
    show(server, 20)
    page.open(server, "/cameras/Gleis%203%20Süd")
    eventually(lambda: page.run("return document.getElementById('image').naturalWidth") == 160)
    eventually(lambda: page.zone_counts()[0][0] == "left")
    page.draw((0.6, 0.1), (0.9, 0.1), (0.9, 0.9))
    page.click("finish")
    page.driver.switch_to.active_element.send_keys("doors\n")
    page.click("add-limit")
    page.driver.switch_to.active_element.send_keys("77")
    page.draw((0.1, 0.1), (0.4, 0.1), (0.4, 0.9))
    page.click("finish")
    page.driver.switch_to.active_element.send_keys("hall\n")
    chosen = page.driver.find_elements(By.CSS_SELECTOR, "#limit-list select.zone")[-1]
    Select(chosen).select_by_visible_text("hall")  # drawn after the limit was begun
    page.click("save")
    eventually(lambda: page.at("key-dialog").get_attribute("open"))
    assert "admin key" in page.text("key-title")
    page.at("key").send_keys("not-the-admin-key\n")
    eventually(lambda: "not" in page.text("key-error") and page.at("key-dialog").get_attribute("open"))
    page.at("key").send_keys(KEY + "\n")
    eventually(lambda: "Saved" in page.text("saved"))
    saved = settings(server)
    assert [zone["name"] for zone in saved["zones"]] == ["left", "doors", "hall"]
    assert [(limit["people"], limit["zone"]) for limit in saved["limits"]] == [(300, None), (77, "hall")]
    assert saved["limits"][1]["cooldown_seconds"] == 300
    assert saved["keep_picture"]
    corner = saved["zones"][1]["polygon"][0]
    assert corner == pytest.approx([0.6, 0.1], abs=0.02)


def test_a_mask_and_the_ground_are_marked_with_keys_alone(page: Page, server: Running) -> None:
    show(server, 20)
    page.open(server, "/cameras/Gleis%203%20Süd")
    page.run("sessionStorage.setItem('uepnet-key', arguments[0])", KEY)
    eventually(lambda: page.zone_counts())
    page.at("draw-ground").send_keys(Keys.ENTER)
    keys = ActionChains(page.driver, duration=10)
    big = (Keys.ARROW_LEFT, Keys.ARROW_UP), (Keys.ARROW_RIGHT, None), (None, Keys.ARROW_DOWN), (Keys.ARROW_LEFT, None)
    for number, (sideways, upright) in enumerate(big):
        keys.key_down(Keys.SHIFT)
        for direction in (sideways, upright):
            if direction is not None:
                for _ in range(2 if number == 0 else 4):
                    keys.send_keys(direction)
        keys.key_up(Keys.SHIFT).send_keys(" ")
    keys.perform()
    eventually(lambda: "Ground" in [name for name, _ in page.zone_counts()])
    page.at("draw-mask").send_keys(Keys.ENTER)
    keys = ActionChains(page.driver, duration=10)
    keys.send_keys(" ", *[Keys.ARROW_RIGHT] * 5, " ", *[Keys.ARROW_DOWN] * 5, " ", Keys.ENTER).perform()
    eventually(lambda: len(page.zone_counts()) == 3)
    page.at("save").send_keys(Keys.ENTER)
    eventually(lambda: "Saved" in page.text("saved"))
    saved = settings(server)
    assert len(saved["ground"]["points"]) == 4
    assert saved["ground"]["rectangle"] == [10, 10]
    assert len(saved["mask"][0]) == 3
    assert page.run("return getComputedStyle(document.activeElement).outlineStyle") != "none"
    # What is saved here overrides the file, and says so; the file's settings can be had again.
    assert page.at("origin").is_displayed()
    page.at("back-to-file").send_keys(Keys.ENTER)
    eventually(lambda: "counts again" in page.text("saved"))
    assert settings(server)["ground"] is None
    assert not page.at("origin").is_displayed()


def test_what_the_server_refuses_is_said(page: Page, server: Running) -> None:
    page.open(server, "/cameras/Gleis%203%20Süd")
    page.run("sessionStorage.setItem('uepnet-key', arguments[0])", KEY)
    eventually(lambda: page.zone_counts())
    page.draw((0.1, 0.1), (0.9, 0.9), (0.9, 0.1), (0.1, 0.9))
    page.click("finish")
    page.click("save")
    eventually(lambda: "crosses" in page.text("error-text"))


def test_the_chart_shows_the_history_and_reads_single_values(page: Page, server: Running) -> None:
    count = show(server, 200)
    time.sleep(1.2)
    page.open(server, "/cameras/Gleis%203%20Süd")
    eventually(lambda: page.run("return document.getElementById('series').options.length") == 2)
    page.at("chart").send_keys(Keys.ARROW_LEFT)
    assert f"{round(count)} people" in page.text("readout")
    page.run("document.querySelector('[data-hours=\"1\"]').click()")
    eventually(lambda: page.run("return document.querySelector('[data-hours=\"1\"]').ariaPressed") == "true")
    assert page.download("save-history", "Gleis 3 Süd.csv").read_text().startswith("time,zone,mean")


def test_an_alert_is_acknowledged(page: Page, server: Running) -> None:
    show(server, 255)
    eventually(lambda: server.http.get("/v1/alerts").json()["open"])
    page.open(server, "/alerts")
    eventually(lambda: "limit 300" in page.text("open"))
    page.driver.find_element(By.CSS_SELECTOR, "#open button").click()
    eventually(lambda: not page.driver.find_elements(By.CSS_SELECTOR, "#open button"))
    eventually(lambda: not page.at("alert-number").is_displayed())
    assert server.http.get("/v1/alerts").json()["open"][0]["acknowledged"]


def test_a_camera_s_page_says_what_is_wrong_with_it(page: Page, server: Running) -> None:
    show(server, 255)
    eventually(lambda: server.http.get("/v1/alerts").json()["open"])
    page.open(server, "/cameras/Gleis%203%20Süd")
    eventually(lambda: "limit 300" in page.text("open-alerts"))
    page.driver.find_element(By.CSS_SELECTOR, "#open-alerts button").click()
    eventually(lambda: "Acknowledged" in page.text("open-alerts"))
    page.open(server, "/cameras/quiet")
    eventually(lambda: page.text("badge") == "No frame yet")
    assert page.text("open-alerts") == ""


def test_several_photographs_are_counted_and_named(page: Page, server: Running, tmp_path: Path) -> None:
    names = []
    for value in (50, 100, 150):
        path = tmp_path / f"place {value}.png"
        path.write_bytes(encoded(grey(160, 96, value)))
        names.append(path)
    page.open(server)
    page.at("file").send_keys("\n".join(str(name) for name in names))
    eventually(lambda: page.text("progress").lower() == "3 of 3")
    assert [line for line in page.text("files").splitlines() if line.startswith("place")] == [one.name for one in names]


@pytest.mark.parametrize(("width", "height"), [(1300, 950), (390, 844), (320, 640)])
def test_the_pages_fit_any_screen(page: Page, server: Running, width: int, height: int) -> None:
    show(server, 255)
    mobile = width < 800
    page.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)
    for path in ("/", "/cameras/Gleis%203%20Süd", "/alerts", "/docs"):
        page.open(server, path)
        time.sleep(1.0)
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), path
        assert page.complaints() == []


def test_an_unknown_address_is_a_page_for_people_and_a_problem_for_programs(server: Running) -> None:
    for_people = server.http.get("/nowhere", headers={"Accept": "text/html,*/*"})
    assert (for_people.status_code, for_people.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert server.http.get("/nowhere").headers["content-type"] == "application/problem+json"
    assert server.http.get("/v1/nowhere", headers={"Accept": "text/html"}).headers["content-type"].endswith("+json")
