"""What a platform shows while a test goes on: samples of one tier, and events."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import cycle
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluice_ops.channel import Channel
from sluice_ops.model.change import SCALER, ChangeRecord, Step, change_of_step
from sluice_ops.model.ids import OperationId, TierName
from sluice_ops.model.scaler import RUN_PREFIX, Decision, asked_by_scaler
from sluice_ops.operations.scaling import ScalerChange, scaler_changes
from sluice_ops.planning.placement.cluster import BURST_ZONE
from sluice_ops.queries import describe
from sluice_ops.queries.figures import Figures
from sluice_ops.snapshot.view import View, read_view
from tests.scenarios.live import Live

SAMPLE_SECONDS = 1.0
FRESH_SECONDS = 10.0
"""An older sample answers no question."""
KILL_LOOK_SECONDS = 0.05
STORY_LINES = 25
"""How many of the last events a failure tells."""
AT_WORK, SPARE, CHANGING, ON_EC2, LENT, FREE = "at work", "spare", "changing", "on EC2", "lent", "free"
USES = (AT_WORK, SPARE, CHANGING, ON_EC2, LENT, FREE)


@dataclass(frozen=True)
class Sample:
    """The tier at one moment."""

    at: float
    fed: float
    """Records a second that are fed."""
    rate_in: float
    rate_out: float
    lag: int
    slots: dict[str, int]
    """The slots of the tier's place by their use, and those on EC2."""
    wanted: int
    away: int
    """The workers on EC2 that the scaler wants besides."""


@dataclass
class Timeline:
    """Records one tier inside `with Timeline(live, "ask", room=4) as timeline:`."""

    live: Live
    tier: str
    room: int
    """The slots that the tier's place has for it and for batch."""
    fed: Callable[[], float] = lambda: 0.0
    samples: list[Sample] = field(default_factory=list)
    events: list[tuple[float, str]] = field(default_factory=list)
    decisions: list[tuple[int, int, str]] = field(default_factory=list)
    """The numbers that the scaler wanted, one after the other: at home, on EC2, and why."""
    changes: dict[str, ChangeRecord] = field(default_factory=dict)
    """The changes and runbooks of the scaler that began meanwhile."""
    begun: dict[str, ScalerChange] = field(default_factory=dict)
    """The changes that the scaler began itself, with their reasons."""
    reason: str = ""
    """The scaler's last sentence, also if it changed nothing."""
    _known: frozenset[str] = frozenset()
    _failed: str = ""

    def __enter__(self) -> Self:
        self._channel = Channel(self.live.endpoints["zookeeper"]).start()
        self._known = frozenset(self._channel.children("/changes"))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped.set()
        self._thread.join()
        self._channel.stop()

    def _loop(self) -> None:
        while not self._stopped.wait(SAMPLE_SECONDS):
            try:
                self._look()
                self._failed = ""
            except Exception as error:  # noqa: BLE001 — a service may be away; a failure tells it
                self._failed = f"{type(error).__name__}: {error}"

    def _look(self) -> None:
        view = read_view(self._channel)
        self._look_at_changes(view)
        decision = view.scaler.decisions.get(TierName(self.tier))
        if decision is not None:
            self._look_at_decision(decision)
        ((rate_in, rate_out, lag),) = self.live.rows(
            "select rate_in, rate_out, lag from tier_progress where tier = %s", self.tier
        ) or [(0.0, 0.0, 0)]
        self.samples.append(
            Sample(
                at=time.time(),
                fed=self.fed(),
                rate_in=rate_in,
                rate_out=rate_out,
                lag=lag,
                slots=self._slots(view),
                wanted=0 if decision is None else decision.wanted,
                away=0 if decision is None else decision.away,
            )
        )

    def _slots(self, view: View) -> dict[str, int]:
        hosts = {line.name: line for line in describe.hosts(view)}
        line = next(each for each in describe.tiers(view, Figures()) if each.name == self.tier)
        uses = Counter(
            ON_EC2
            if worker.host in hosts and hosts[worker.host].zone == BURST_ZONE
            else {"active": AT_WORK, "spare": SPARE}.get(worker.state, CHANGING)
            for worker in line.workers
        )
        lent = sum(slot.startswith("slot-batch") for host in hosts.values() for slot in host.slots)
        used = uses[AT_WORK] + uses[SPARE] + uses[CHANGING] + lent
        counts = {use: uses[use] for use in (AT_WORK, SPARE, CHANGING, ON_EC2)}
        return {**counts, LENT: lent, FREE: self.room - used}

    def _look_at_decision(self, decision: Decision) -> None:
        self.reason = decision.reason
        numbers = (decision.wanted, decision.away)
        if not self.decisions or self.decisions[-1][:2] != numbers:
            self.decisions.append((*numbers, decision.cause))
            self.tell(
                f"the scaler ({decision.mode}) wants {numbers[0]} + {numbers[1]} on EC2: {decision.cause}"
            )

    def _look_at_changes(self, view: View) -> None:
        names = view.changes.keys() - self._known
        self.begun |= {str(each.id): each for each in scaler_changes(self._channel, names)}
        for name in sorted(names):
            record = view.changes[name]
            if record.by != SCALER and not asked_by_scaler(record.by):
                continue
            before = self.changes.get(name)
            if before is None or before.state is not record.state:
                self.tell(f"{name} is {record.state}")
            self.changes[name] = record

    def tell(self, event: str) -> None:
        self.events.append((time.time(), event))
        print(f"{time.strftime('%H:%M:%S')} {event}", flush=True)

    # -- what a test asks

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    def expect(self, what: str, seconds: float, check: Callable[[], Any]) -> float:
        """Wait until `check` holds; return the seconds that it took. Fail with the whole story."""
        begun = time.monotonic()
        while time.monotonic() - begun < seconds:
            if self.samples and time.time() - self.last.at < FRESH_SECONDS and check():
                took = time.monotonic() - begun
                self.tell(f"after {took:.0f} s of at most {seconds:.0f} s: {what}")
                return took
            time.sleep(0.5)
        raise AssertionError(f"expected within {seconds:.0f} s: {what}\n{self.story()}")  # noqa: EM102, TRY003

    def story(self) -> str:
        """Return what the platform showed, for a failure."""
        lines = [f"the last sample: {asdict(self.last)}" if self.samples else "there is no sample"]
        if self._failed:
            lines.append(f"the last look failed: {self._failed}")
        status = self.live.sluice("status", check=False)
        lines += ["the last events:", *self._last_events(), "sluice status:", status.stdout[-4000:]]
        lines += ["sluice scaler:", self.live.sluice("scaler", check=False).stdout[-3000:]]
        with suppress(OSError):
            lines += self._failed_runs()
        log = self.live.layout.logs / "controller.log"
        if log.exists():
            lines += ["the end of the controller's log:", log.read_text(errors="replace")[-3000:]]
        return "\n".join(lines)

    def _failed_runs(self) -> list[str]:
        """Return the logs of runs that failed meanwhile."""
        return [
            f"failed run {dag} {run}:\n{self.live.log_of_failed(dag, run)}"
            for dag in ("scaler", "follow_change", "burst_to_ec2", "leave_ec2")
            for run, state in self.live.runs(dag).items()
            if state == "failed"
        ][-4:]

    def _last_events(self) -> list[str]:
        return [
            f"  {time.strftime('%H:%M:%S', time.localtime(at))} {event}"
            for at, event in self.events[-STORY_LINES:]
        ]

    def first(self, check: Callable[[Sample], bool], since: float = 0.0) -> float:
        """Return when a sample first held, from a time on; infinite if none did."""
        return next((each.at for each in self.samples if each.at >= since and check(each)), float("inf"))

    def save(self, path: Path, zero: float) -> None:
        """Write each second sample and all events as JSON; their times count from `zero`."""
        kept = self.samples[::2]
        columns = {name: [getattr(each, name) for each in kept] for name in ("fed", "rate_in", "rate_out")}
        columns |= {name: [getattr(each, name) for each in kept] for name in ("lag", "wanted", "away")}
        record = {
            "tier": self.tier,
            "at": [round(each.at - zero, 1) for each in kept],
            **columns,
            "slots": {use: [each.slots[use] for each in kept] for use in USES},
            "events": [{"at": round(at - zero, 1), "event": event} for at, event in self.events],
        }
        path.write_text(json.dumps(record) + "\n")


def is_of_scaler(change: str, tier: str) -> bool:
    """Tell from its id whether a change of a tier is the scaler's, or one of its runbooks."""
    return change.startswith(f"scale-{tier}-to-") or RUN_PREFIX in change


@contextmanager
def controller_killed_in_each_change(timeline: Timeline) -> Iterator[dict[str, Step]]:
    """Kill the controller once in each change of the scaler; yield the step of each change.

    The steps take turns: one change meets the kill in its cut, the next one as it begins.
    """
    killed: dict[str, Step] = {}
    ended = threading.Event()
    turns = cycle((Step.CUT, Step.PREFLIGHT, Step.VERIFY, Step.RELEASE, Step.PREPARE))
    live = timeline.live

    def watch() -> None:
        with Channel(live.endpoints["zookeeper"]) as channel:
            before = {change_of_step(OperationId(name)) for name in channel.children("/operations")}
            turn = next(turns)
            while not ended.wait(KILL_LOOK_SECONDS):
                for name in channel.children("/operations"):
                    change = change_of_step(OperationId(name))
                    mine = is_of_scaler(change, timeline.tier) and change not in {*before, *killed}
                    if mine and name.endswith(f".{turn}"):
                        kill_controller(live)
                        killed[change] = turn
                        timeline.tell(f"the controller is killed: {change} was posted {turn}")
                        turn = next(turns)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        ended.set()
        thread.join()


def kill_controller(live: Live) -> None:
    """Kill the controller, and wait until its next process runs."""
    pid = live.service_pid("controller")
    os.kill(pid, signal.SIGKILL)
    while True:
        time.sleep(0.5)
        try:
            if live.service_pid("controller") != pid:
                return
        except AssertionError:  # it does not run yet
            continue
