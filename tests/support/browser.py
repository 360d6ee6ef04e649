"""A real browser on the service's page: Debian's chromium, driven by selenium."""

from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from support.servers import Running, eventually

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1300,950"
)


class Page:
    """A browser on a server's page."""

    def __init__(self, folder: Path) -> None:
        options = webdriver.ChromeOptions()
        for flag in (*FLAGS.split(), f"--user-data-dir={folder / 'profile'}"):
            options.add_argument(flag)
        options.binary_location = "/usr/bin/chromium"
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))

    def reset(self, downloads: Path) -> None:
        """As good as a new browser, and much sooner there."""
        self.run("try { sessionStorage.clear() } catch {}")
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.command("Emulation.clearDeviceMetricsOverride")
        self.command("Emulation.setTouchEmulationEnabled", enabled=False)
        self.command("Emulation.setEmulatedMedia", features=[])
        self.downloads = downloads
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def command(self, name: str, **arguments: Any) -> None:
        self.driver.execute_cdp_cmd(name, arguments)

    def open(self, server: Running, path: str = "/photographs") -> None:
        self.driver.get(server.url + path)

    def at(self, identity: str) -> WebElement:
        return self.driver.find_element(By.ID, identity)

    def text(self, identity: str) -> str:
        return str(self.at(identity).text)

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def choose(self, path: Path) -> None:
        self.at("file").send_keys(str(path))

    def counted(self) -> None:
        eventually(lambda: self.at("panel").is_displayed() and not self.at("busy").is_displayed())

    def click(self, identity: str) -> None:
        self.run("arguments[0].scrollIntoView({block: 'center'})", self.at(identity))
        self.at(identity).click()

    def point(self, x: float, y: float) -> tuple[int, int]:
        """Offsets from the picture's middle, as selenium wants them, of a point in fractions of the picture."""
        size = self.at("zones").size
        return round((x - 0.5) * size["width"]), round((y - 0.5) * size["height"])

    def draw(self, *corners: tuple[float, float]) -> None:
        self.click("draw")
        self.run("document.getElementById('picture').scrollIntoView({block: 'center'})")
        actions = ActionChains(self.driver, duration=30)
        for corner in corners:
            actions.move_to_element_with_offset(self.at("zones"), *self.point(*corner)).click()
        actions.perform()

    def zone_counts(self) -> list[tuple[str, str]]:
        """(name, count) of each row, read in one go: the page makes new rows whenever they change."""
        rows = self.run(
            "return [...document.querySelectorAll('#zone-list li')].map((row) =>"
            " [row.querySelector('input').value, row.querySelector('output').textContent])"
        )
        return [(name, count) for name, count in rows]

    def zones_counted(self) -> None:
        eventually(lambda: self.zone_counts() and all(count not in ("", "…") for _, count in self.zone_counts()))

    def download(self, identity: str, name: str) -> Path:
        self.click(identity)
        file = self.downloads / name
        # An empty file holds the name until the whole one takes its place.
        eventually(lambda: file.is_file() and file.stat().st_size > 0)
        return file

    def complaints(self) -> list[str]:
        """What the browser's console holds against the page, a violated policy say."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
