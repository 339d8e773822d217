"""A headless Chromium that opens a page and tells what it met."""

from __future__ import annotations

import importlib.util
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome
    from selenium.webdriver.remote.webelement import WebElement

ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--force-color-profile=srgb",
)  # fmt: skip


def missing() -> str:
    """What is not installed of a browser and its driver; "" where all is."""
    if importlib.util.find_spec("selenium") is None:
        return "selenium is not installed"
    names = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(names)} not installed: apt-get install chromium chromium-driver" if names else ""


@contextmanager
def chromium(width: int = 1400, height: int = 1000) -> Iterator[Chrome]:
    """A browser with a window of so many pixels, which logs its console and its requests."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for argument in (*ARGUMENTS, f"--window-size={width},{height}"):
        options.add_argument(argument)
    options.binary_location = str(shutil.which("chromium"))
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(shutil.which("chromedriver"))))
    try:
        yield driver
    finally:
        driver.quit()


class Opened:
    """A page in a browser."""

    def __init__(self, driver: Chrome, page: Path) -> None:
        self.driver = driver
        driver.get_log("browser")
        driver.get_log("performance")
        driver.get(page.resolve().as_uri())

    def messages(self) -> list[str]:
        """What the console said."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """The addresses that were asked for, but for the page itself."""
        logged = self.driver.get_log("performance")
        events = [json.loads(entry["message"])["message"] for entry in logged]
        sent = (event["params"] for event in events if event["method"] == "Network.requestWillBeSent")
        asked = [event["request"]["url"] for event in sent]
        return [address for address in asked if address.partition("#")[0] != self.driver.current_url.partition("#")[0]]

    def find(self, selector: str) -> WebElement:
        return self.driver.find_element("css selector", selector)

    def awaited(self, selector: str) -> WebElement:
        """What the page shows a little later."""
        from selenium.webdriver.support.ui import WebDriverWait

        WebDriverWait(self.driver, 60).until(lambda _: self.all(selector))
        return self.find(selector)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        return [element.text for element in self.all(selector)]

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def view(self, name: str) -> None:
        """Go to a view by its name."""
        self.click("#views button", name)

    def click(self, selector: str, text: str) -> None:
        """What has this text."""
        next(element for element in self.all(selector) if element.text == text).click()

    def choose(self, select: str, value: str) -> None:
        """Choose from a list, as a user does."""
        self.run(
            "const one = document.querySelector(arguments[0]); one.value = arguments[1];"
            "one.dispatchEvent(new Event('change', {bubbles: true}))",
            select,
            value,
        )
