"""The report of the smoke run, opened in a browser and clicked through as a person would."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.expected_conditions import (
    frame_to_be_available_and_switch_to_it as switch_to_frame,
)
from selenium.webdriver.support.wait import WebDriverWait

from blockpilot.catalogue import ABLATIONS, COST, FIGURES, LABELS, RESULTS

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
WAIT_S = 30
TABLES = {
    "main": (RESULTS, "Table: all policies on held-out prompts"),
    "datasets": (LABELS, "Table: data sets"),
    "ablations": (ABLATIONS, "Table: all ablations"),
    "overhead": (COST, "Table: time and memory"),
}
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER),
    reason="needs a browser: apt-get install chromium chromium-driver",
)


@pytest.fixture(scope="module")
def report(smoke, run_to_end, tmp_path_factory) -> Path:
    """Return the report of the smoke run, as `make report` makes it."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    stylesheet = ("--report-stylesheet", "workflow/report/report.css")
    run_to_end(smoke, "--report", str(path), *stylesheet)
    return path


@pytest.fixture(scope="module")
def browser(report) -> Iterator[webdriver.Chrome]:
    """Yield a browser, as small as an old laptop, that shows the report."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Without a sandbox, because tests may run as root.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.add_argument("--window-size=1280,720")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.get(report.as_uri())
        yield driver
    finally:
        driver.quit()


def wait_for(browser: webdriver.Chrome, selector: str) -> WebElement:
    """Return the element of a CSS selector once it is there."""
    return WebDriverWait(browser, WAIT_S).until(lambda b: b.find_element(By.CSS_SELECTOR, selector))


def open_category(browser: webdriver.Chrome, name: str) -> list[str]:
    """Click home and then a category; return the names of what it offers."""
    wait_for(browser, "nav nav a").click()
    link = f"//li/a[span[normalize-space()='{name}']]"
    WebDriverWait(browser, WAIT_S).until(lambda b: b.find_element(By.XPATH, link)).click()
    wait_for(browser, "tbody tr")
    return [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tbody tr")]


def click_result(browser: webdriver.Chrome, name: str, button: int) -> None:
    """Click a button of a result in the open category: 0 shows it, 1 its description."""
    rows = browser.find_elements(By.CSS_SELECTOR, "tbody tr")
    [row] = [row for row in rows if row.text == name]
    row.find_elements(By.CSS_SELECTOR, "a")[button].click()


def serious(browser: webdriver.Chrome) -> list[str]:
    """Return the errors that the browser has logged since the last call."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def expected() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for category, title in [*TABLES.values(), *((f.category, f.title) for f in FIGURES.values())]:
        found.setdefault(category, set()).add(title)
    return found


def test_the_report_opens_offline_and_tells_what_it_is(browser) -> None:
    description = wait_for(browser, "div.prose").text
    assert "BlockPilot chooses the length of that block once per prompt" in description
    assert "the experiment smoke" in description
    assert serious(browser) == []
    script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    fetched = browser.execute_script(script)
    assert [name for name in fetched if not name.startswith(("data:", "blob:"))] == []


def test_every_category_lists_its_figures_and_tables(browser) -> None:
    for category, titles in expected().items():
        assert set(open_category(browser, category)) == titles
    assert serious(browser) == []


def test_every_figure_is_shown(browser, tmp_path) -> None:
    for figure in FIGURES.values():
        open_category(browser, figure.category)
        before = browser.find_elements(By.CSS_SELECTOR, "div.p-3 > img")
        source = before[0].get_attribute("src") if before else None
        click_result(browser, figure.title, button=0)
        WebDriverWait(browser, WAIT_S).until(
            lambda b, old=source: b.execute_script(
                "const i = document.querySelector('div.p-3 > img');"
                "return i && i.complete && i.src !== arguments[0]",
                old,
            )
        )
        image = browser.find_element(By.CSS_SELECTOR, "div.p-3 > img")
        assert int(image.get_property("naturalWidth")) > 0, figure.title
        edges = browser.execute_script(
            "const box = arguments[0].getBoundingClientRect();"
            "return [box.top, box.left, innerHeight - box.bottom, innerWidth - box.right]",
            image,
        )
        assert min(edges) >= 0, f"{figure.title} is cut off: {edges}"
        pixels = np.asarray(Image.open(io.BytesIO(image.screenshot_as_png)).convert("L"))
        assert 0.001 < (pixels < 128).mean() < 0.5, f"{figure.title}: hardly any ink, or too much"
    assert browser.save_screenshot(str(tmp_path / "report.png"))
    assert serious(browser) == []


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_readable(browser, folder, name) -> None:
    category, title = TABLES[name]
    open_category(browser, category)
    click_result(browser, title, button=0)
    WebDriverWait(browser, WAIT_S).until(switch_to_frame((By.CSS_SELECTOR, "iframe")))
    try:
        rows = browser.find_elements(By.CSS_SELECTOR, "body > table > tbody > tr")
        assert len(rows) == len(pd.read_csv(folder / f"tables/{name}.csv"))
        cell = {"main": "oracle (bound)", "datasets": "human_eval"}.get(name)
        shown = [td.text for td in rows[-1].find_elements(By.CSS_SELECTOR, "td")]
        assert any(shown), "the last row is empty"
        if cell:
            found = browser.find_element(By.XPATH, f"//td[normalize-space()='{cell}']")
            assert found.is_displayed()
        headings = [heading.text for heading in browser.find_elements(By.CSS_SELECTOR, "h2")]
        assert [h.startswith("Reported by the papers") for h in headings] == (
            [] if name == "datasets" else [True]
        )
    finally:
        browser.switch_to.default_content()
    assert serious(browser) == []


def test_a_result_is_described(browser) -> None:
    figure = FIGURES["speedup"]
    open_category(browser, figure.category)
    click_result(browser, figure.title, button=1)
    wait_for(browser, "ul li")
    text = browser.find_element(By.ID, "app").text
    assert "The grey band around 1 is ar measured against itself" in " ".join(text.split())
    assert "plot_figures" in text
