"""A real browser without a window, driven by Selenium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = ["start_browser"]

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
_MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


@contextmanager
def start_browser(scheme: str = "light", size: tuple[int, int] = (1400, 860)) -> Iterator[Any]:
    """Start Chromium or Chrome."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    binary = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if binary is None and Path(_MAC).exists():
        binary = _MAC
    if binary is None:
        pytest.skip("no Chromium or Chrome was found (on Debian: chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    # Root, as in a container, has no sandbox; /dev/shm may be small there.
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--disable-gpu",
        f"--window-size={size[0]},{size[1]}",
        f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = shutil.which("chromedriver")
    # Without a driver, Selenium would download one.
    service = Service(driver, log_output=os.devnull) if driver else Service(log_output=os.devnull)
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()
