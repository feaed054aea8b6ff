"""A browser for all pages. It is closed at the end; what it complains of or asks for fails the test."""

import json
import shutil

import pytest


@pytest.fixture(scope="session")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    from selenium.webdriver.chrome.service import Service

    chromium, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    if not (chromium and driver):
        pytest.skip("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # With a place given, selenium does not look for a driver elsewhere.
    made = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield made
    made.quit()


@pytest.fixture
def opened(browser, pages):
    """Open a page of the module's folder ``pages``; when the test is over, the browser has nothing to complain of."""

    def open_page(name):
        browser.get((pages / f"{name}.html").as_uri())
        headings = browser.execute_script("return [...document.querySelectorAll('h1,h2,h3')].map((e) => e.textContent)")
        assert len(set(headings)) == len(headings), headings
        return browser

    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    yield open_page
    assert browser.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert asked
    assert all(url.startswith(("file:", "data:")) for url in asked)
