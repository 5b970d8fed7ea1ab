"""The last steps of a start: Airflow supervises every tier, every driver runs, a record arrives."""

import threading
import time
import urllib.error
from pathlib import Path

from sluice_ops.channel.client import Channel, ChannelAwayError
from sluice_ops.local.airflow_rest import AirflowRest
from sluice_ops.local.layout import Layout
from sluice_ops.local.services.postgres import connect
from sluice_ops.local.start.starting import HaltedError
from sluice_ops.local.start.steps import Step
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State, TierWanted
from sluice_ops.model.release import Release
from sluice_ops.model.tier import Kind, TierSpec
from sluice_ops.site import endpoints
from sluice_ops.site.installation import PlatformError

TABLE_SINKS = {"DeltaTable", "JsonFiles", "Latest", "Once", "ParquetFiles", "Totals"}
"""The kinds of sinks that write into a table."""
NEWEST_BATCHES_QUERY = "select tier, max(batch) from ledger where tier = any(%s) group by tier"
LATER_ROW_QUERY = "select 1 from ledger where tier = %s and batch > %s and rows_out > 0 limit 1"
DAGS_SECONDS = 180.0
"""Limit for Airflow to parse the DAGs of all tiers."""
TIERS_SECONDS = 240.0
"""Limit for all drivers to run and for the first record to arrive."""


def known_endpoints(layout: Layout) -> endpoints.Endpoints:
    """Return this home's own endpoints, regardless of SLUICE_ENDPOINTS."""
    return endpoints.Endpoints.model_validate_json(layout.endpoints.read_text())


class Deadline:
    """A deadline for the tiers that counts from the moment when Airflow supervises them.

    Before that moment, nobody may have requested the tiers.
    """

    def __init__(self, seconds: float) -> None:
        """Allow `seconds`, counted from `begin`."""
        self.seconds = seconds
        self._end: float | None = None

    def begin(self) -> None:
        """Start to count."""
        self._end = time.monotonic() + self.seconds

    def rest(self, halt: threading.Event, seconds: float, passed: str) -> None:
        """Wait a moment; PlatformError with the sentence `passed` if the deadline has passed."""
        if self._end is not None and time.monotonic() > self._end:
            raise PlatformError(passed)
        if halt.wait(seconds):
            raise HaltedError


def supervise(services: endpoints.Endpoints, password: str, halt: threading.Event) -> str:
    """Unpause and trigger each published tier's DAG, as Airflow's user `operator`.

    Returns a sentence with the numbers of tiers and of triggered runs. PlatformError if Airflow
    does not parse all DAGs in time.
    """
    with Channel(services.zookeeper) as channel:
        waiting = [f"tier_{name}" for name in expected_tiers(channel)]
    airflow = AirflowRest(services.airflow.url, "operator", password)
    end = time.monotonic() + DAGS_SECONDS
    triggered, total = 0, len(waiting)
    while waiting:
        for dag in list(waiting):
            try:
                if airflow.knows(dag):
                    triggered += airflow.supervise(dag)
                    waiting.remove(dag)
            except (urllib.error.URLError, TimeoutError):
                continue
        if waiting and halt.wait(0.5):
            raise HaltedError
        if waiting and time.monotonic() > end:
            errors = "; ".join(airflow.import_errors()) or "no import error; see `sluice logs airflow-dags`"
            message = f"Airflow did not parse {', '.join(waiting)} within {DAGS_SECONDS:.0f} s: {errors}"
            raise PlatformError(message)
    return f"{total} tiers supervised, {triggered} runs triggered"


def supervise_step(layout: Layout, services: tuple[str, ...], deadline: Deadline) -> Step:
    """Return the step that unpauses and triggers each tier's DAG."""

    def act(halt: threading.Event) -> str:
        outcome = supervise(known_endpoints(layout), layout.secrets().airflow_operator, halt)
        deadline.begin()
        return outcome

    return Step("tier-dags", act, needs=services)


def expected_tiers(channel: Channel) -> list[str]:
    """Return the tiers that a start runs: all published tiers, except stopped ones."""
    return [tier for tier in channel.children("/tiers") if _is_wanted(channel, tier)]


def _is_wanted(channel: Channel, tier: str) -> bool:
    wanted = channel.read(paths.wanted(tier), TierWanted)
    return wanted is None or wanted.value.running


def _not_running(channel: Channel, tier: str) -> str | None:
    """Return the reason why a tier does not run; None if it runs."""
    owner = channel.read(paths.owner(tier), OwnerRecord)
    if owner is None or owner.value.owner is None:
        return f"{tier}: not started"
    report = channel.read(paths.report(tier, owner.value.owner), IncarnationReport)
    if report is None:
        return f"{tier}: incarnation {owner.value.owner} has not reported"
    if owner.value.paused and report.value.state is State.PAUSED:
        return None
    if report.value.state is not State.RUNNING:
        return f"{tier}: incarnation {owner.value.owner} is {report.value.state}" + (
            f": {report.value.error}" if report.value.error else ""
        )
    if not Path(f"/proc/{report.value.pid}").exists():
        return (
            f"{tier}: the driver of incarnation {owner.value.owner} has ended, and the next incarnation "
            "has not started yet"
        )
    return None


def missing_tiers(channel: Channel) -> list[str]:
    """Return a sentence for each wanted tier that does not run, or one if no tier is published."""
    published = channel.children("/tiers")
    if not published:
        return ["no tier is published"]
    return [
        reason for tier in published if _is_wanted(channel, tier) and (reason := _not_running(channel, tier))
    ]


def running_step(layout: Layout, deadline: Deadline) -> Step:
    """Return the step that waits until every tier's driver runs."""

    def act(halt: threading.Event) -> str:
        missing: list[str] = []
        while True:
            try:
                with Channel(known_endpoints(layout).zookeeper) as channel:
                    while missing := missing_tiers(channel):
                        rest(missing, halt)
                    return f"{', '.join(expected_tiers(channel)) or 'none'} run"
            except ChannelAwayError as error:  # a busy machine ends the session, not the start
                rest([*missing, str(error)], halt)

    def rest(missing: list[str], halt: threading.Event) -> None:
        passed = (
            f"not all tiers run after {deadline.seconds:.0f} s: {'; '.join(missing)}. See `sluice "
            f"status`, and the drivers' logs below {layout.home / 'hosts'} (`sluice logs` lists the logs)"
        )
        deadline.rest(halt, 0.25, passed)

    # wait for publishing, too: otherwise the step would end before a new tier is published
    return Step("tiers", act, needs=("controller", "pipeline"))


def delivering_tiers(channel: Channel) -> list[str]:
    """Return the wanted outbound tiers that write into a table."""
    return [tier for tier in expected_tiers(channel) if _delivers(channel, tier)]


def _delivers(channel: Channel, tier: str) -> bool:
    spec = channel.read(paths.tier(tier), TierSpec)
    if spec is None or spec.value.release is None or spec.value.kind is not Kind.OUTBOUND:
        return False
    release = channel.read(paths.release(spec.value.release), Release)
    shape = None if release is None else release.value.tiers.get(TierName(tier))
    return shape is not None and any(sink.kind in TABLE_SINKS for sink in shape.sinks)


def delivery_step(layout: Layout, deadline: Deadline) -> Step:
    """Return the step that waits until a table has a record of the feed, written after the step
    began.
    """

    def act(halt: threading.Event) -> str:
        with Channel(known_endpoints(layout).zookeeper) as channel:
            tiers = delivering_tiers(channel)
        if not tiers:
            return "no outbound tier writes into a table; the start waits for no record"
        with connect(layout, "sluice") as link:
            before: dict[str, int] = dict(link.execute(NEWEST_BATCHES_QUERY, (tiers,)).fetchall())
            while True:
                for tier in tiers:
                    if link.execute(LATER_ROW_QUERY, (tier, before.get(tier, -1))).fetchone():
                        return f"{tier} has written a record into its table"
                passed = (
                    f"no record reached the table of {' or '.join(tiers)} within "
                    f"{deadline.seconds:.0f} s; `sluice status` shows in which stream records wait"
                )
                deadline.rest(halt, 0.1, passed)

    return Step("first-record", act, needs=("pipeline", "feed"))
