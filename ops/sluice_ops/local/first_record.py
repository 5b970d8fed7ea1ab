"""The end of a start: Airflow supervises every tier, every tier's driver runs, and a record has come all the way."""

import threading
import time
import urllib.error
from pathlib import Path

from sluice_ops.channel.client import Channel
from sluice_ops.local.airflow_rest import AirflowRest
from sluice_ops.local.layout import Layout
from sluice_ops.local.services.postgres import connect
from sluice_ops.local.start.starting import HaltedError
from sluice_ops.local.start.steps import Step
from sluice_ops.model import paths
from sluice_ops.model.ids import TierName
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State, TierWanted
from sluice_ops.model.release import Release
from sluice_ops.model.tier import TierSpec
from sluice_ops.site import endpoints
from sluice_ops.site.installation import PlatformError

DAGS_SECONDS = 180.0
TIERS_SECONDS = 240.0


def known_endpoints(where: Layout) -> endpoints.Endpoints:
    """Read this home's own endpoints, whatever SLUICE_ENDPOINTS says."""
    return endpoints.Endpoints.model_validate_json(where.endpoints.read_text())


class Patience:
    """How long the tiers may take, counted from when Airflow supervises them: until then nothing may have asked for them."""

    def __init__(self, seconds: float) -> None:
        """Count from `begin` on."""
        self.seconds = seconds
        self._end: float | None = None

    def begin(self) -> None:
        """Start to count."""
        self._end = time.monotonic() + self.seconds

    @property
    def over(self) -> bool:
        """Whether the time has passed."""
        return self._end is not None and time.monotonic() > self._end


def supervise(found: endpoints.Endpoints, password: str, halt: threading.Event) -> str:
    """Have each published tier's DAG un-paused and running, as Airflow's user `operator`; say how many were triggered."""
    with Channel(found.zookeeper) as channel:
        waiting = [f"tier_{name}" for name in expected(channel)]
    rest = AirflowRest(found.airflow.url, "operator", password)
    until = time.monotonic() + DAGS_SECONDS
    triggered, total = 0, len(waiting)
    while waiting:
        for dag in list(waiting):
            try:
                if rest.knows(dag):
                    triggered += rest.supervise(dag)
                    waiting.remove(dag)
            except (urllib.error.URLError, TimeoutError):
                continue
        if waiting and halt.wait(0.5):
            raise HaltedError
        if waiting and time.monotonic() > until:
            errors = "; ".join(rest.import_errors()) or "no file could not be read, see airflow-dags.log"
            message = f"Airflow has not read {', '.join(waiting)} within {DAGS_SECONDS:.0f} s: {errors}"
            raise PlatformError(message)
    return f"{total} tiers supervised, {triggered} runs triggered"


def supervising(where: Layout, services: tuple[str, ...], patience: Patience) -> Step:
    """Return the step that has each tier's DAG un-paused and running."""

    def act(halt: threading.Event) -> str:
        outcome = supervise(known_endpoints(where), where.secrets().airflow_operator, halt)
        patience.begin()
        return outcome

    return Step("tier-dags", act, needs=services)


def expected(channel: Channel) -> list[str]:
    """Return the tiers that a start brings up: all that are published, but for those that somebody has stopped."""
    return [tier for tier in channel.children("/tiers") if _is_wanted(channel, tier)]


def _is_wanted(channel: Channel, tier: str) -> bool:
    said = channel.read(paths.wanted(tier), TierWanted)
    return said is None or said.value.running


def _not_running(channel: Channel, tier: str) -> str | None:
    """Say why a tier does not run; None when it does."""
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
        return f"{tier}: the driver of incarnation {owner.value.owner} has gone and its successor is not there yet"
    return None


def missing_tiers(channel: Channel) -> list[str]:
    """Return a sentence for each tier that should run and does not; one sentence where no tier is published."""
    published = channel.children("/tiers")
    if not published:
        return ["no tier is published"]
    return [
        reason for tier in published if _is_wanted(channel, tier) and (reason := _not_running(channel, tier))
    ]


def running(where: Layout, patience: Patience) -> Step:
    """Return the step that waits until every tier's driver runs."""

    def act(halt: threading.Event) -> str:
        with Channel(known_endpoints(where).zookeeper) as channel:
            while True:
                missing = missing_tiers(channel)
                if not missing:
                    return f"{', '.join(expected(channel)) or 'none'} run"
                if patience.over:
                    listed = "; ".join(missing)
                    message = (
                        f"tiers: not all run after {patience.seconds:.0f} s: {listed}. "
                        f"See `sluice status` and the drivers' logs below {where.home / 'hosts'}"
                    )
                    raise PlatformError(message)
                if halt.wait(0.25):
                    raise HaltedError

    # not before all of them are published: the first ones may run long before a new one is there
    return Step("tiers", act, needs=("controller", "pipeline"))


def fills(channel: Channel, table: str) -> bool:
    """Tell whether a published tier that is to run writes into a table."""
    for tier in expected(channel):
        spec = channel.read(paths.tier(tier), TierSpec)
        release = None if spec is None or spec.value.release is None else spec.value.release
        shapes = None if release is None else channel.read(paths.release(release), Release)
        shape = None if shapes is None else shapes.value.tiers.get(TierName(tier))
        if shape is not None and shape.sink is not None and shape.sink.name == table:
            return True
    return False


def delivering(where: Layout, patience: Patience) -> Step:
    """Return the step that waits for a record that was delivered after it began."""

    def act(halt: threading.Event) -> str:
        with Channel(known_endpoints(where).zookeeper) as channel:
            if not fills(channel, "delivered"):
                return "no published tier writes into `delivered`; the start waits for no record"
        with connect(where, "sluice") as link:
            # by batch, which has an index: the table may be long
            before = link.execute("select coalesce(max(batch), -1) from delivered").fetchone()
            while True:
                found = link.execute("select id from delivered where batch > %s limit 1", before).fetchone()
                if found is not None:
                    return f"{found[0]} is in PostgreSQL"
                if patience.over:
                    late = f"within {patience.seconds:.0f} s"
                    message = f"delivery: no record has reached `delivered` {late}; `sluice status` shows where they wait"
                    raise PlatformError(message)
                if halt.wait(0.1):
                    raise HaltedError

    return Step("first-record", act, needs=("pipeline", "feed"))
