"""Makes the screenshots of the README and the docs, of a platform that has just drained a host.

It writes to docs/images.
"""

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.scenarios.browser import PAGE_MILLISECONDS, page_of, take_picture
from tests.scenarios.live import ROOT, WAIT_SECONDS, Live, until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

IMAGES = ROOT / "docs" / "images"
STARVED_SECONDS = 600
"""The time until tiers that were starved while the platform started are not any more."""


@pytest.fixture(scope="module")
def browser_page(chromium: Browser, live: Live) -> Page:
    return page_of(chromium, live, "operator")


def shoot(page: Page, name: str) -> None:
    take_picture(page, IMAGES / f"{name}.png")


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


def test_another_person_approves_a_change_in_airflow(live: Live, chromium: Browser) -> None:
    airflow = live.endpoints["airflow"]["url"]
    with live.site(approval={"always": ["cordon"]}):
        run = live.trigger("cordon_host", host="h3")
        live.wait_for_form("cordon_host", run)
        until("the alert is told", WAIT_SECONDS, lambda: "change-waits" in live.sluice("alert").stdout)
        page = page_of(chromium, live, "admin")
        page.goto(f"{airflow}/plugin/sluice/alerts")
        expect(page.get_by_label("firing alerts")).to_be_visible(timeout=PAGE_MILLISECONDS)
        page.get_by_role("link", name="change-waits").click()
        expect(page.get_by_role("button", name="Approve cordon h3")).to_be_visible(timeout=PAGE_MILLISECONDS)
        page.goto(f"{airflow}/dags/cordon_host/runs/{run}/tasks/preflight/required_actions")
        approve = page.get_by_role("button", name="Approve")
        expect(approve).to_be_enabled(timeout=PAGE_MILLISECONDS)
        shoot(page, "approval")
        approve.click()
        assert live.wait_for_end("cordon_host", run) == "success"
    assert live.hosts()["h3"]["state"] == "cordoned"
    live.sluice("return", "h3")
