"""Makes the screenshots of the README and the docs, of a platform that has just drained a host.

It writes to docs/images. It needs Chromium, which `apt-get install chromium` installs.
"""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

IMAGES = ROOT / "docs" / "images"
WIDTH, HEIGHT = 1280, 760
PAGE_MILLISECONDS = 60_000
STARVED_SECONDS = 600
"""The time until tiers that were starved while the platform started are not any more."""


@pytest.fixture(scope="module")
def browser_page(live: Live) -> Iterator[Page]:
    """Return a page of a browser in which the operator is logged in to Airflow."""
    browser = shutil.which("chromium")
    assert browser, "install Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(live.endpoints["airflow"]["url"])
        page.locator("input[name=username]").fill("operator")
        page.locator("input[name=password]").fill(live.layout.secrets().airflow_operator)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("Welcome")).to_be_visible(timeout=PAGE_MILLISECONDS)
        yield page
        chromium.close()


def shoot(page: Page, name: str) -> None:
    page.wait_for_timeout(2_000)  # until animations have ended
    page.screenshot(path=IMAGES / f"{name}.png")


def test_screenshots_show_a_drained_host(live: Live, browser_page: Page) -> None:
    page, airflow = browser_page, live.endpoints["airflow"]["url"]
    live.wait_for_class_data()
    run = live.trigger("drain_host", host="h1")
    assert live.wait_for_end("drain_host", run) == "success"
    until(
        "no tier is starved",
        STARVED_SECONDS,
        lambda: not any(tier["starved"] for tier in live.tiers().values()),
    )
    page.goto(f"{airflow}/dags/drain_host/runs/{run}")
    expect(page.get_by_text("cut_over").first).to_be_visible(timeout=PAGE_MILLISECONDS)
    expect(page.get_by_text("Success").first).to_be_visible(timeout=PAGE_MILLISECONDS)
    shoot(page, "drain-host")

    page.goto(f"{airflow}/plugin/sluice")
    expect(page.get_by_label("tier enrich")).to_be_visible(timeout=PAGE_MILLISECONDS)
    shoot(page, "page")
    page.get_by_role("tab", name="Hosts").click()
    state = page.get_by_label("host h1").get_by_text("drained", exact=True)
    expect(state).to_be_visible(timeout=PAGE_MILLISECONDS)
    shoot(page, "page-hosts")
    live.sluice("return", "h1")
    until("h1 is up", WAIT_SECONDS, lambda: live.hosts()["h1"]["state"] == "up")
