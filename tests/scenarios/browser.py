"""A person with a browser: signs in to Airflow, and takes screenshots."""

from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.scenarios.live import Live

WIDTH, HEIGHT = 1280, 760
PAGE_MILLISECONDS = 60_000
ANIMATION_MILLISECONDS = 2_000
USERS = {"viewer": "airflow_viewer", "operator": "airflow_operator", "admin": "airflow"}
"""Each user of Airflow, and the secret that is the password."""


def page_of(chromium: Browser, live: Live, user: str) -> Page:
    """Return a page of a browser in which the user is logged in to Airflow."""
    page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
    page.set_default_timeout(PAGE_MILLISECONDS)
    expect.set_options(timeout=PAGE_MILLISECONDS)
    page.goto(live.endpoints["airflow"]["url"])
    page.locator("input[name=username]").fill(user)
    page.locator("input[name=password]").fill(getattr(live.layout.secrets(), USERS[user]))
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_text("Welcome")).to_be_visible()
    return page


def take_picture(page: Page, path: Path) -> None:
    """Save a screenshot once animations have ended."""
    page.wait_for_timeout(ANIMATION_MILLISECONDS)
    page.screenshot(path=path)
