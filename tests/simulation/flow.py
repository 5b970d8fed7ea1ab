"""A simulated pipeline in a row: an entry, stages with capacities, and a control law between them.

The intake of the entry, the lag history of each stage and the control law are those of the product.
Time goes in steps of `STEP` seconds.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from sluice.api.declarations import Stream
from sluice.driver.engine.intake import Intake
from sluice.driver.positions.lag import LagHistory, Look
from sluice_ops.controller.policies.backpressure import lagging_after
from sluice_ops.model.admission import admitted_rate
from sluice_ops.model.backpressure import Lag, Pressure, Watermarks, is_over
from sluice_ops.model.tier import Delivery, Kind, Mode, TierSpec

STEP = 0.1
LOOK_SECONDS = 2.0
"""Time between two looks of a driver."""
REPORT_SECONDS = 0.4
"""The way of a report to the controller."""
PASS_SECONDS = 1.0
STOP_SECONDS, START_SECONDS = 3.0, 1.5
"""The time without intake when the entry's query is stopped, and when it starts again."""
JOB_SECONDS = 0.3
"""The fixed part of the time of a job of the throttled entry."""
ENTRY_CAPACITY = 20_000
"""How many records the entry can take in each second."""
BATCH, BATCH_SECONDS = 20_000, 2.0
"""The largest batch of the entry, and the time between two batches of its query."""
DEFAULTS = Watermarks()


@dataclass
class Stage:
    """A tier after the entry."""

    name: str
    capacity: Callable[[float], float]
    """Records per second, at a time."""
    marks: Watermarks = DEFAULTS
    most: int = 0
    """The largest micro-batch; 0: a realtime tier."""
    makes: float = 1.0
    """How many of its input records the stage before makes of one record."""
    end: float = 0.0
    position: float = 0.0
    _left: float = 0.0
    _size: float = 0.0
    _arrivals: deque[tuple[float, float]] = field(default_factory=deque)

    @property
    def waiting(self) -> float:
        return self.end - self.position

    def step(self, now: float) -> float:
        """Process for a step; return the records that are out."""
        before, work = self.position, self.capacity(now) * STEP
        if not self.most:
            self.position += min(self.waiting, work)
            return self.position - before
        while work > 0:
            if self._left <= 0:
                self._size = self._left = min(self.most, self.waiting)
            if self._left <= 0:
                break
            done = min(work, self._left)
            work, self._left = work - done, self._left - done
            if self._left <= 0:
                self.position += self._size
        return self.position - before

    def look(self, now: float) -> Look:
        self._arrivals.append((now, self.end))
        while len(self._arrivals) > 1 and self._arrivals[1][1] <= self.position:
            self._arrivals.popleft()
        waits = now - self._arrivals[0][0] if self.waiting >= 1 else 0.0
        place = f"{self.name}/0"
        return Look(now, now, {place: int(self.end)}, {place: int(self.position)}, {place: waits})


@dataclass(frozen=True)
class Order:
    """What the controller tells the entry."""

    culprit: str | None = None
    admitted: float = 0.0


class Law(Protocol):
    """A control law with its reports and its intake."""

    def report(self, stage: Stage, look: Look) -> Pressure | None:
        """Return the report of a stage's driver after a look."""

    def order(self, before: Order, taken: float | None, pressures: dict[str, Pressure]) -> Order:
        """Return the controller's order; `taken` is the rate that the entry reported."""

    def allowance(self, now: float, order: Order) -> int:
        """Return how many records the entry lets in now."""


def specs(names: list[str]) -> dict[str, TierSpec]:
    """Return the declarations of an entry and stages in a row."""
    tiers = ["entry", *names]
    return {
        name: TierSpec(
            name=name,
            kind=Kind.PROCESSING,
            mode=Mode.REALTIME,
            delivery=Delivery.AT_LEAST_ONCE,
            inputs=(f"to-{name}",),
            outputs=tuple(f"to-{after}" for after in tiers[number + 1 : number + 2]),
            distance=len(tiers) - number,
        )
        for number, name in enumerate(tiers)
    }


class Rates:
    """The product's law: the entry lets records in at the rate that the lagging tiers want."""

    def __init__(self, most: int = BATCH) -> None:
        self._intake = Intake(most)
        self._histories: dict[str, LagHistory] = {}
        self._names: list[str] = []

    def report(self, stage: Stage, look: Look) -> Pressure | None:
        if stage.name not in self._histories:
            self._names.append(stage.name)
            self._histories[stage.name] = LagHistory((Stream(stage.name, watermarks=stage.marks),))
        history = self._histories[stage.name]
        history.update(look, lambda: None, lambda _: {})
        return history.pressure

    def order(self, before: Order, taken: float | None, pressures: dict[str, Pressure]) -> Order:
        culprits = lagging_after(specs(self._names), pressures).get("entry", ())
        if not culprits:
            return Order()
        rate = before.admitted if before.culprit is not None else 0.0
        return Order(culprits[0], admitted_rate(rate, taken, [pressures[name] for name in culprits]))

    def allowance(self, now: float, order: Order) -> int:
        return self._intake.allowance(now, 0.0, None if order.culprit is None else order.admitted)


class TwoThresholds:
    """The law before: nothing comes in between the high and the low watermark, and then one batch
    more in each round of four seconds.
    """

    def __init__(self, most: int = BATCH) -> None:
        self._most, self._rounds, self._left, self._begun = most, 0, 0, 0.0
        self._over: dict[str, bool] = {}

    def report(self, stage: Stage, look: Look) -> Pressure | None:
        lag = Lag(records=int(stage.waiting), seconds=look.waits[f"{stage.name}/0"])
        over = is_over(lag, stage.marks, before=self._over.get(stage.name, False))
        self._over[stage.name] = over
        return Pressure(stream=stage.name, lag=lag, since=0.0) if over else None

    def order(self, _before: Order, _taken: float | None, pressures: dict[str, Pressure]) -> Order:
        return Order(max(pressures, default=None))

    def allowance(self, now: float, order: Order) -> int:
        if order.culprit is not None:
            self._rounds = self._left = 0
        elif self._rounds == 0 or now >= self._begun + 4.0:
            self._rounds += 1
            self._left, self._begun = self._rounds * self._most, now
        allowed = min(self._most, self._left)
        self._left -= allowed
        return allowed


@dataclass(frozen=True)
class Moment:
    """The pipeline at one time."""

    now: float
    backlog: float
    """Records that wait before the entry."""
    waiting: dict[str, float]
    """Records that wait for each stage."""
    out: float
    """Records that the last stage has processed."""
    order: Order
    flows: bool
    """Whether the entry's query runs."""


class Pipeline:
    """The entry, the stages, and the way of reports and orders."""

    def __init__(
        self, offered: Callable[[float], float], stages: list[Stage], law: Law, *, batches: bool = False
    ) -> None:
        """With `batches` the entry's query works in micro-batches, else record by record."""
        self._offered, self._stages, self._law, self._batches = offered, stages, law, batches
        self._next_batch = 0.0
        self._raw = self._position = 0.0
        self._own: deque[tuple[float, float]] = deque(maxlen=16)
        """The entry's position at its last looks."""
        self._flows, self._still_until = True, 0.0
        self._job: tuple[float, float, bool] | None = None
        """The records of the job, those not done, and whether no others wait."""
        self._order = Order()
        self._reports: deque[tuple[float, str, Pressure | None]] = deque()
        self._pressures: dict[str, Pressure] = {}
        self._taken: deque[tuple[float, float | None]] = deque()
        self._reported_taken: float | None = None

    def run(self, seconds: float) -> list[Moment]:
        """Run from the start; return each step."""
        moments = []
        for number in range(round(seconds / STEP)):
            now = number * STEP
            self._raw += self._offered(now) * STEP
            came = self._enter(now)
            for stage in self._stages:
                stage.end += came * stage.makes
                came = stage.step(now)
            if number % round(LOOK_SECONDS / STEP) == 0:
                self._look(now)
            if number % round(PASS_SECONDS / STEP) == 0:
                self._decide(now)
            waiting = {stage.name: stage.waiting for stage in self._stages}
            backlog = self._raw - self._position
            out = self._stages[-1].position
            moments.append(Moment(now, backlog, waiting, out, self._order, self._flows))
        return moments

    def _enter(self, now: float) -> float:
        """Let records in for a step, and return their number."""
        waits, most = self._raw - self._position, ENTRY_CAPACITY * STEP
        if now < self._still_until:
            return 0.0
        if self._flows:
            if self._batches and now < self._next_batch:
                return 0.0
            self._next_batch = now + BATCH_SECONDS
            count = min(waits, BATCH if self._batches else most)
            self._position += count
            return count
        if self._job is None:
            return self._begin_job(now, waits)
        size, left, is_last = self._job
        done = min(left, most)
        self._job = (size, left - done, is_last)
        if left <= done:
            self._job = None
            self._position += size
            if is_last and self._order.culprit is None:
                self._flows, self._still_until = True, now + START_SECONDS
        return done

    def _begin_job(self, now: float, waits: float) -> float:
        allowed = self._law.allowance(now, self._order)
        if allowed:
            count = min(allowed, int(waits))
            if count:
                self._job, self._still_until = (count, count, count == int(waits)), now + JOB_SECONDS
            elif self._order.culprit is None:
                self._flows, self._still_until = True, now + START_SECONDS
        return 0.0

    def _look(self, now: float) -> None:
        self._own.append((now, self._position))
        seconds = now - self._own[0][0]
        known = not self._flows and seconds >= 10.0
        taken = (self._position - self._own[0][1]) / seconds if known else None
        self._taken.append((now + REPORT_SECONDS, taken))
        for stage in self._stages:
            report = self._law.report(stage, stage.look(now))
            self._reports.append((now + REPORT_SECONDS, stage.name, report))

    def _decide(self, now: float) -> None:
        while self._reports and self._reports[0][0] <= now:
            _, name, pressure = self._reports.popleft()
            self._pressures.pop(name, None)
            if pressure is not None:
                self._pressures[name] = pressure
        while self._taken and self._taken[0][0] <= now:
            self._reported_taken = self._taken.popleft()[1]
        self._order = self._law.order(self._order, self._reported_taken, self._pressures)
        if self._order.culprit is not None and self._flows:
            self._flows, self._still_until = False, now + STOP_SECONDS
