"""Debian's chromium, driven by selenium: what a person does with the page, and its complaints."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.common.exceptions import (
    ElementNotInteractableException,
    NoSuchElementException,
    StaleElementReferenceException,
)
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import Select

import servers

LIMIT_S = 90.0
PICTURES = servers.TREE / "build" / "screenshots"
T = TypeVar("T")
# At once: a button that the page builds anew between press and release gets no click. What is
# covered cannot be clicked by a person, either.
CLICK = """
const found = document.querySelector(arguments[0]);
if (!found || found.matches(":disabled")) return false;
found.scrollIntoView({block: "center", behavior: "instant"});
const [box] = found.getClientRects();
if (!box) return false;
const there = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
if (!found.contains(there)) return false;
found.focus();
found.click();
return true;
"""
_NOT_YET = (
    NoSuchElementException,
    StaleElementReferenceException,
    ElementNotInteractableException,
)


def wait(look: Callable[[], T], told: str = "") -> T:
    """What `look` finds, once it is something; the page may change under its hands."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        try:
            found = look()
        except _NOT_YET:
            found = None  # type: ignore[assignment]
        if found:
            return found
        assert time.monotonic() < end_s, f"{told or 'it'} did not come within {LIMIT_S:.0f} s"
        time.sleep(0.05)


class Browser:
    """One window. Ends with `close`."""

    def __init__(self, url: str, *, dark: bool = False, language: str = "en") -> None:
        self.url = url
        self._home = Path(tempfile.mkdtemp(prefix="oj-browser-"))
        options = webdriver.ChromeOptions()
        options.binary_location = "/usr/bin/chromium"
        for argument in (
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--no-first-run",
            f"--user-data-dir={self._home}",
            f"--lang={language}",
        ):
            options.add_argument(argument)
        options.add_experimental_option("prefs", {"intl.accept_languages": language})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        # Some systems have a proxy in the environment; the gateway is on this machine.
        for name in ("no_proxy", "NO_PROXY"):
            os.environ.setdefault(name, "127.0.0.1,localhost")
        self.driver: Any = webdriver.Chrome(
            options=options, service=Service("/usr/bin/chromedriver")
        )
        self.driver.set_page_load_timeout(LIMIT_S)
        self.resize(1280, 900)
        self.look(dark)

    def close(self) -> None:
        self.driver.quit()
        shutil.rmtree(self._home, ignore_errors=True)

    # ------------------------------------------------------------- the window

    def resize(self, width: int, height: int) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )

    def look(self, dark: bool) -> None:
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {
                "features": [
                    {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
                    {"name": "prefers-reduced-motion", "value": "reduce"},
                ]
            },
        )

    def picture(self, name: str, *, whole: bool = True) -> Path:
        """The whole page, or what the window shows of it, kept for people to look at."""
        PICTURES.mkdir(parents=True, exist_ok=True)
        if not whole:
            self.driver.save_screenshot(str(PICTURES / f"{name}.png"))
            return PICTURES / f"{name}.png"
        size = self.script(
            "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]"
        )
        before = self.script("return [innerWidth, innerHeight]")
        self.resize(before[0], min(max(size[1], before[1]), 2600))
        path = PICTURES / f"{name}.png"
        self.driver.save_screenshot(str(path))
        self.resize(*before)
        return path

    def wide(self) -> int:
        """By how much the page is wider than the window."""
        width: int = self.script(
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return width

    # ----------------------------------------------------------- what one does

    def open(self, path: str) -> None:
        self.driver.get(self.url + path)
        wait(lambda: not self.script("return document.querySelector('main[aria-busy]')"), path)
        self.find("h1")

    @property
    def path(self) -> str:
        parts = urlsplit(self.driver.current_url)
        return parts.path + (f"?{parts.query}" if parts.query else "")

    def script(self, text: str, *arguments: Any) -> Any:
        return self.driver.execute_script(text, *arguments)

    def find(self, selector: str) -> WebElement:
        return wait(lambda: self.driver.find_element(By.CSS_SELECTOR, selector), selector)

    def all(self, selector: str) -> list[WebElement]:
        found: list[WebElement] = self.driver.find_elements(By.CSS_SELECTOR, selector)
        return found

    def text(self, selector: str) -> str:
        def read() -> tuple[str] | None:
            # Not `.text`: what is scrolled away counts as well.
            found = self.driver.find_element(By.CSS_SELECTOR, selector)
            return (found.get_property("textContent"),)

        return wait(read, selector)[0]

    def see(self, selector: str, text: str) -> None:
        """Waits until it says that."""
        wait(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def click(self, selector: str) -> None:
        wait(lambda: self.script(CLICK, selector), selector)

    def type(self, selector: str, text: str) -> None:
        def write() -> bool:
            field = self.driver.find_element(By.CSS_SELECTOR, selector)
            field.clear()
            field.send_keys(text)
            return True

        wait(write, selector)

    def choose(self, selector: str, value: str) -> None:
        def select() -> bool:
            field = self.driver.find_element(By.CSS_SELECTOR, selector)
            Select(field).select_by_value(value)
            return True

        wait(select, f"{value} in {selector}")

    def write_program(self, text: str) -> None:
        """Into the editor, once it is there."""
        self.find(".CodeMirror")
        self.script("document.querySelector('.CodeMirror').CodeMirror.setValue(arguments[0])", text)

    def log_in(self, token: str, then: str = "/") -> None:
        self.open("/login")
        self.type("input[name=token]", token)
        self.click("form button[type=submit]")
        self.find("#logout")
        if then != "/":
            self.open(then)

    # ------------------------------------------------------ what it complains of

    def complaints(self, expected: tuple[str, ...] = ()) -> list[str]:
        """Warnings and errors of the console since the last time, but for what is expected."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] in ("WARNING", "SEVERE")
            and not any(part in entry["message"] for part in expected)
        ]

    def requests(self) -> list[str]:
        """Addresses asked for since the last time."""
        found = []
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.append(message["params"]["request"]["url"])
        return found

    def strangers(self) -> list[str]:
        """Addresses that are not the gateway's."""
        own = (self.url + "/", "data:", "blob:", "about:", "chrome:", "chrome-error:")
        return [address for address in self.requests() if not address.startswith(own)]
