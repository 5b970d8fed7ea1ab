"""The page Sluice in a browser: roles, faults within seconds, and every view as people see it."""

import os
import signal
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect

from tests.scenarios.browser import PAGE_MILLISECONDS, page_of
from tests.scenarios.live import WAIT_SECONDS, Live, until

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(1200), pytest.mark.filterwarnings("ignore")]

VIEWS = ("Flow", "Hosts", "Changes", "Alerts", "Shares", "Truth")
NARROW = {"width": 390, "height": 800}
FAULT_MILLISECONDS = 3_000
"""The longest time from a driver's death until the page shows it."""
CLICK_MILLISECONDS, CLICKS = 300, 5
"""The longest time, at the median, from a click on Airflow's home until the first card is there."""
FIRST_CARD = """link => new Promise(done => {
  const begun = performance.now();
  const look = () => document.querySelector(".sluice:not(.tile) .card")
    ? done(performance.now() - begun) : requestAnimationFrame(look);
  link.click();
  requestAnimationFrame(look);
})"""
BACKGROUND = "element => getComputedStyle(element).backgroundColor"
BUTTONS = {
    "hosts": ["Drain h1", "Cordon h1", "Reboot h1"],
    "hosts/h1": ["Drain h1", "Cordon h1", "Reboot h1", "Canary h1", "Decommission h1"],
    "flow": ["Scale enrich", "Migrate enrich", "Pause enrich", "Upgrade enrich"],
    "tiers/enrich": ["Scale enrich", "Migrate enrich", "Pause enrich", "Burst enrich", "Replay enrich"],
    "shares": ["Scale enrich", "Burst enrich"],
}
"""The buttons of an operator in a view while every host is up and every tier runs."""
SERIOUS = {"serious", "critical"}
WIDER = "element => Math.max(0, element.scrollWidth - element.clientWidth)"


def open_page(page: Page, live: Live, path: str = "plugin/sluice") -> None:
    page.goto(f"{live.endpoints['airflow']['url']}/{path}")
    expect(page.locator(".sluice .pill.good").first).to_have_text("live", timeout=PAGE_MILLISECONDS)


@contextmanager
def without_errors(page: Page) -> Iterator[None]:
    """Fail if the page writes an error to the browser's console during the block."""
    errors: list[str] = []

    def record(message: ConsoleMessage) -> None:
        if message.type == "error":
            errors.append(message.text)

    page.on("console", record)
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield
    page.remove_listener("console", record)
    assert errors == []


def test_a_viewer_sees_the_page_and_may_start_nothing(live: Live, chromium: Browser) -> None:
    viewer, operator = (page_of(chromium, live, user) for user in ("viewer", "operator"))
    for page, buttons in ((operator, 1), (viewer, 0)):
        with page.expect_response("**/sluice/actions*") as answer:
            open_page(page, live, "plugin/sluice/hosts")
        assert bool(answer.value.json()) == bool(buttons)
        for view, names in BUTTONS.items():
            open_page(page, live, f"plugin/sluice/{view}")
            expect(page.get_by_role("tabpanel")).not_to_be_empty()
            for name in names:
                expect(page.get_by_role("button", name=name, exact=True)).to_have_count(buttons)
        page.close()


def test_a_dead_driver_is_shown_within_three_seconds(live: Live, chromium: Browser) -> None:
    page = page_of(chromium, live, "operator")
    open_page(page, live)
    state = page.get_by_label("tier enrich").locator("header .pill")
    expect(state).to_have_text("running")
    os.kill(live.tiers()["enrich"]["driver"]["pid"], signal.SIGKILL)
    expect(state).not_to_have_text("running", timeout=FAULT_MILLISECONDS)
    expect(state).to_have_text("running", timeout=WAIT_SECONDS * 1000)
    page.close()


def test_every_view_is_accessible_and_fits_a_phone(live: Live, chromium: Browser) -> None:
    page = page_of(chromium, live, "operator")
    backgrounds = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        with without_errors(page):
            open_page(page, live)
            backgrounds.append(page.locator(".sluice").first.evaluate(BACKGROUND))
            for size in ({"width": 1280, "height": 800}, NARROW):
                page.set_viewport_size(size)
                for view in VIEWS:
                    page.get_by_role("tab", name=view).click()
                    expect(page.get_by_role("tabpanel")).not_to_be_empty()
                    assert page.locator(".sluice").first.evaluate(WIDER) == 0, (view, size)
                    violations = Axe().run(page, context=".sluice").response["violations"]
                    serious = [
                        (each["id"], [node["target"] for node in each["nodes"]])
                        for each in violations
                        if each["impact"] in SERIOUS
                    ]
                    assert serious == [], (view, scheme, size)
    assert backgrounds[0] != backgrounds[1], "Airflow's dark scheme has colours of its own"
    page.close()


def test_the_views_are_used_by_keyboard_and_without_a_stream(live: Live, chromium: Browser) -> None:
    page = page_of(chromium, live, "operator")
    open_page(page, live)
    page.get_by_role("tab", name="Flow").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Hosts")).to_be_focused()
    expect(page.get_by_label("host h1", exact=True)).to_be_visible()
    page.route("**/sluice/events*", lambda route: route.abort())
    page.reload()
    badge = page.locator(".sluice header .pill").first
    expect(badge).to_have_text("polling")
    expect(page.get_by_label("host h1", exact=True)).to_be_visible()
    page.close()


def test_the_tab_of_a_tier_and_the_tile_on_the_home_show_the_pipeline(live: Live, chromium: Browser) -> None:
    page = page_of(chromium, live, "viewer")
    open_page(page, live, "dags/tier_enrich/plugin/sluice-dag")
    expect(page.get_by_role("heading", name="Tier enrich")).to_be_visible()
    page.goto(live.endpoints["airflow"]["url"])
    tile = page.get_by_role("region", name="Sluice")
    expect(tile).to_contain_text("hosts 3 of 3 up")
    until("the tile counts tiers", WAIT_SECONDS, lambda: "4 of 4 running" in tile.inner_text())
    for answer in ("state", "events"):
        page.route(f"**/sluice/{answer}*", lambda route: route.abort())
    tile.get_by_role("link", name="Sluice").click()
    expect(page.get_by_label("tier counts")).to_be_visible()  # the page begins with the tile's state
    page.close()


def test_a_click_on_the_home_shows_the_first_card_at_once(live: Live, chromium: Browser) -> None:
    page = page_of(chromium, live, "viewer")
    milliseconds = []
    for _ in range(CLICKS):
        page.goto(live.endpoints["airflow"]["url"])
        tile = page.get_by_role("region", name="Sluice")
        expect(tile).to_contain_text("4 of 4 running")
        milliseconds.append(tile.get_by_role("link", name="Sluice").evaluate(FIRST_CARD))
    print(f"first card after {', '.join(f'{each:.0f}' for each in milliseconds)} ms")
    page.close()
    assert statistics.median(milliseconds) < CLICK_MILLISECONDS
