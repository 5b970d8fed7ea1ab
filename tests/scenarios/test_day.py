"""A day of operations by two persons who have only the page and Airflow, under load.

A screenshot of each step goes to the folder `day` of the platform's home.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.header import decode_header, make_header
from pathlib import Path
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from playwright.sync_api import Browser, Locator, Page, expect

from tests.scenarios.browser import page_of, take_picture
from tests.scenarios.live import WAIT_SECONDS, Live, until
from tests.scenarios.oracle import Load, counts_agree
from tests.scenarios.releases import fails_on_buys

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(3000), pytest.mark.filterwarnings("ignore")]

CALM, SPIKE = 20, 160
"""Records per second."""
RUN_MILLISECONDS = 600_000
"""The deadline of a runbook."""
MAIL_PORT_OFFSET = 90
"""The mail server's port, above the platform's port base."""


class Mailbox:
    """Receives the mails of alerts."""

    def __init__(self) -> None:
        self.subjects: list[str] = []

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        subject = message_from_bytes(envelope.content)["Subject"]
        self.subjects.append(str(make_header(decode_header(subject))))
        return "250 OK"

    def about(self, words: str) -> list[str]:
        """Return the subjects with these words, in the order in which they came."""
        return [subject for subject in self.subjects if words in subject]


@pytest.fixture
def mailbox(live: Live) -> Iterator[tuple[Mailbox, str]]:
    """Return a mailbox, and the URL of its channel."""
    box, port = Mailbox(), int(live.env["SLUICE_PORT_BASE"]) + MAIL_PORT_OFFSET
    server = Controller(box, hostname="127.0.0.1", port=port)
    server.start()
    yield box, f"mailto://127.0.0.1:{port}?from=sluice@example.org&to=night@example.org"
    server.stop()


@dataclass
class Person:
    """A person in a browser."""

    page: Page
    airflow: str
    pictures: Path

    def open(self, path: str) -> None:
        self.page.goto(f"{self.airflow}/{path}")

    def view(self, tab: str) -> None:
        """Open a view of the page Sluice."""
        self.open("plugin/sluice")
        self.page.get_by_role("tab", name=tab).click()

    def picture(self, name: str) -> None:
        number = len(list(self.pictures.glob("*.png"))) + 1
        take_picture(self.page, self.pictures / f"{number:02d}-{name}.png")

    def carry_out(self, action: str, **fields: str) -> None:
        """Press a button of the page; look at the plan, start the runbook, and follow it."""
        name = action.lower().replace(" ", "-")
        self.page.get_by_role("button", name=action, exact=True).first.click()
        dialog = self.page.get_by_role("dialog", name=action)
        for field, value in fields.items():
            dialog.get_by_label(field).fill(value)
        if fields:
            dialog.get_by_role("button", name="Show the plan").click()
        expect(dialog.get_by_label("plan", exact=True)).to_be_visible(timeout=RUN_MILLISECONDS)
        self.picture(f"{name}-plan")
        dialog.get_by_role("button", name=f"{action} now").click()
        expect(dialog.get_by_label("steps of the run").get_by_role("listitem").first).to_be_visible()
        self.picture(f"{name}-runs")
        expect(dialog.get_by_text("Done.")).to_be_visible(timeout=RUN_MILLISECONDS)
        dialog.get_by_role("button", name="Close").click()

    def trigger(self, live: Live, runbook: str, fill: Callable[[Locator], None]) -> str:
        """Trigger a runbook with Airflow's form; return the address of its run."""
        before = live.runs(runbook)
        self.open(f"dags/{runbook}")
        self.page.get_by_role("button", name="Trigger").first.click()
        form = self.page.get_by_role("dialog")
        fill(form)
        self.picture(f"{runbook}-form")
        form.get_by_role("button", name="Trigger", exact=True).click()
        run = until(
            "the run begins", WAIT_SECONDS, lambda: next(iter(live.runs(runbook).keys() - before), None)
        )
        return f"dags/{runbook}/runs/{run}"

    def ends(self, run: str, state: str) -> None:
        """Follow a run in Airflow until it has ended in a state."""
        self.open(run)
        expect(self.page.get_by_text(state, exact=True).first).to_be_visible(timeout=RUN_MILLISECONDS)

    def stream(self, name: str) -> tuple[int, int]:
        """Return the rate and the lag that the page shows on the edge of a stream."""
        edge = self.page.locator(".drawing g", has_text=name).first
        found = re.search(r"([\d.,]+)/s.* lag ([\d,]+)", " ".join(edge.locator("text").all_text_contents()))
        return (0, 0) if found is None else (whole(found[1]), whole(found[2]))


def whole(text: str) -> int:
    return int(float(text.replace(",", "")))


def test_two_persons_run_a_day_of_operations(
    live: Live, chromium: Browser, publish: Callable[..., str], mailbox: tuple[Mailbox, str]
) -> None:
    pictures = live.home / "day"
    shutil.rmtree(pictures, ignore_errors=True)
    pictures.mkdir()
    anna, ben = (
        Person(page_of(chromium, live, user), live.endpoints["airflow"]["url"], pictures)
        for user in ("operator", "admin")
    )
    ben.page.goto("about:blank")  # until there is something to approve; Airflow's pages ask all the time
    box, url = mailbox
    rules = {"approval": {"hosts": 2}, "alerts": {"channels": [{"url": url}], "airflow": anna.airflow}}
    with live.site(**rules), Load(live, CALM) as load:
        with Load(live, SPIKE) as spike:
            sees_a_spike(anna)
            scales(anna)
        drains_a_host_and_brings_it_back(anna)
        reboots_a_rack(live, anna, ben)
        upgrades_to_a_bad_release(live, anna, publish)
        until("the alert is told", WAIT_SECONDS, lambda: box.about("upgrade"))
        upgrades_to_a_good_release(anna, publish)
        until("its recovery is told", WAIT_SECONDS, lambda: box.about("recovered: upgrade"))
    spike.check()
    load.check()
    counts_agree(live)
    assert len(box.about("upgrade")) == 2, f"one alert of one cause: {box.subjects}"
    reads_what_happened(anna)


def sees_a_spike(anna: Person) -> None:
    anna.view("Flow")
    expect(anna.page.get_by_label("tier entry")).to_be_visible()
    until("the page shows the spike", WAIT_SECONDS, lambda: anna.stream("raw")[0] > SPIKE * 0.7)
    until("the next tier gets it", WAIT_SECONDS, lambda: anna.stream("hits")[0] > SPIKE * 0.7)
    anna.picture("spike")


def scales(anna: Person) -> None:
    anna.carry_out("Scale enrich", k="3")
    expect(anna.page.get_by_label("tier enrich")).to_contain_text("3 active", timeout=RUN_MILLISECONDS)
    anna.picture("scaled")


def drains_a_host_and_brings_it_back(anna: Person) -> None:
    anna.view("Hosts")
    host = anna.page.get_by_label("host h3")
    anna.carry_out("Drain h3")
    expect(host.get_by_text("drained", exact=True)).to_be_visible()
    expect(host.get_by_text("no slot")).to_be_visible()
    anna.picture("drained")
    anna.carry_out("Return h3")
    expect(host.get_by_text("up", exact=True)).to_be_visible()
    anna.picture("returned")


def reboots_a_rack(live: Live, anna: Person, ben: Person) -> None:
    def fill(form: Locator) -> None:
        form.get_by_placeholder("Start typing to see options").fill("rack:r1")
        form.get_by_role("spinbutton", name="At once").fill("2")

    # cut to whole minutes; the run has to begin before that, also on a busy machine
    opens = datetime.now(UTC) + timedelta(minutes=4)
    window = {"schedule": f"{opens:%M %H * * *}", "hours": 2, "timezone": "UTC"}
    with live.site(reboot_window=window):
        run = anna.trigger(live, "rolling_reboot", fill)
        anna.open(f"{run}/tasks/roll")
        expect(anna.page.get_by_text("Waiting until")).to_be_visible(timeout=RUN_MILLISECONDS)
        anna.picture("window-is-closed")
        ben.view("Alerts")
        ben.page.get_by_role("link", name="change-waits").click(timeout=RUN_MILLISECONDS)
        expect(ben.page.get_by_label("approval of reboot-hosts h1 h2")).to_be_visible()
        ben.picture("reboot-waits")
        ben.open("required_actions")
        ben.page.locator(f"a[href*='{run}']").filter(has_text="waits for the approval").click()
        approve = ben.page.get_by_role("button", name="Approve")
        expect(approve).to_be_enabled()
        ben.picture("approval")
        approve.click()
        anna.view("Hosts")
        for host in ("h1", "h2"):
            state = anna.page.get_by_label(f"host {host}").locator("header .pill")
            expect(state).to_have_text("drained", timeout=RUN_MILLISECONDS)
        anna.picture("rack-is-empty")
        anna.ends(run, "Success")
    anna.view("Hosts")
    for host in ("h1", "h2"):
        expect(anna.page.get_by_label(f"host {host}").get_by_text("up", exact=True)).to_be_visible()


def upgrades_to_a_bad_release(live: Live, anna: Person, publish: Callable[..., str]) -> None:
    def fill(form: Locator) -> None:
        form.get_by_role("combobox", name="Canary").click()
        anna.page.get_by_role("option", name="counts").click()

    armed = live.home / "armed"
    publish(outbound=fails_on_buys(armed))
    run = anna.trigger(live, "upgrade_pipeline", fill)
    anna.view("Changes")
    upgrade = anna.page.get_by_label(re.compile("in progress: upgrade outbound"))
    step = upgrade.locator("[aria-current=step]")
    try:
        expect(step).to_have_text("trial", timeout=RUN_MILLISECONDS)
        armed.touch()
        anna.picture("trial-of-a-bad-release")
        anna.ends(run, "Failed")
    finally:
        armed.unlink(missing_ok=True)
    anna.picture("bad-release-came-back")
    anna.view("Alerts")
    expect(
        anna.page.get_by_label("firing alerts").get_by_label("alert change-failed:upgrade_outbound")
    ).to_be_visible()
    anna.picture("alert")


def upgrades_to_a_good_release(anna: Person, publish: Callable[..., str]) -> None:
    release = publish(outbound={"def deliverable(": "# corrected\ndef deliverable("})
    anna.view("Flow")
    anna.carry_out("Upgrade outbound", Release=release)


def reads_what_happened(anna: Person) -> None:
    anna.view("Changes")
    history = anna.page.get_by_label("history of changes")
    anna.picture("history")

    def opens(change: str, state: str) -> None:
        anna.view("Changes")
        row = history.get_by_role("row").filter(has_text=change).filter(has_text=state)
        row.get_by_role("link", name=change).first.click()

    opens("scale enrich", "done")
    expect(anna.page.get_by_label("moves")).to_contain_text("got slot-enrich")
    opens("drain h3", "done")
    expect(anna.page.get_by_label("moves")).to_contain_text("goes on where")
    anna.picture("receipt")
    opens("reboot-hosts h1 h2", "done")
    for host in ("h1", "h2"):
        expect(anna.page.get_by_label("posted steps")).to_contain_text(f"{host} has rebooted")
    trail = anna.page.get_by_label("trail")
    for words in ("asked", "approved", "airflow:admin", "begun", "done"):
        expect(trail).to_contain_text(words)
    trail.scroll_into_view_if_needed()
    anna.picture("trail")
    opens("upgrade outbound", "aborted")
    expect(anna.page.get_by_label("posted steps")).to_contain_text("ValueError")
    anna.picture("bad-release")
    anna.view("Alerts")
    expect(anna.page.get_by_label("alerts that are over")).to_contain_text("change-failed:upgrade_outbound")
    anna.picture("alerts-over")
    anna.view("Truth")
    expect(anna.page.get_by_text("No record is lost.")).to_be_visible()
    anna.picture("truth")
