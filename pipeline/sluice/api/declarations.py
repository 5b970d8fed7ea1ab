"""How a pipeline is declared: streams, tiers, and the sinks at its end. Pure, so that who reads it needs no Spark session.

A tier's transform gets plain business columns and one struct column `lineage`, and returns the same: the platform reads, parses, stamps
and writes around it. Four columns have a meaning of their own when a transform returns them:

- `reason`: text, null for good records; a record with a reason goes to the quarantine stream of the tier's input, with its lineage;
- `index`: a number that tells records apart that were made of the same one (after an explode), and grows from one to the next;
- `to`: where a tier has several outputs, the name of the stream that the record goes to;
- `lineage`: has to be kept, as it came. In a tier that reads a stream with `rounds`, `lineage.round` says how often it has come back.

The transform of a tier with state (decision record 0016) gets one DataFrame for each input, with a column `time` and without `lineage`, and
returns the rows of its table, each made of many records. Where it joins its inputs (`sluice.joined`), it keeps the column `unmatched`.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.api.grouping import Grouping, Local
from sluice.api.hooks import Hooks
from sluice_ops.model.backpressure import Watermarks
from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode, Standby, TierSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.api.sink import Sink

Transform = Callable[..., "DataFrame"]

QUARANTINE = ".quarantine"
"""What is added to a stream's name for the records of it that no tier could use."""
AT_RISK = 1000
"""The largest batch of a tier that delivers at most once: all of one may be lost. Unit: records."""

SOONEST = 60.0
"""No task counts as hung sooner. Unit: seconds."""


class DeclarationError(Exception):
    """The pipeline cannot be run as it is declared; the message names the tier and what to change."""


@dataclass(frozen=True)
class Stream:
    """A Kafka topic between tiers."""

    name: str
    columns: str | None = None
    """What its JSON records hold, as SQL: `id string, at bigint`. None: records from outside, as they are, in one column `value`."""
    grouping: Grouping = field(default_factory=Local)
    """How its records are spread over its partitions."""
    rounds: int = 0
    """It leads back to an earlier tier, and a record may take it so often; one more time, and the record goes to quarantine."""
    watermarks: Watermarks = field(default_factory=Watermarks)
    """How far its readers may be behind before the pipeline's entry is held back, and when it goes on."""

    @property
    def quarantine(self) -> str:
        """The stream that takes the bad records of this one."""
        return self.name + QUARANTINE


@dataclass(frozen=True)
class State:
    """What a tier says that holds state in Spark."""

    lateness: int
    """A record that arrives longer than this after its time is left out, and counted as late. Unit: seconds."""
    time: str | None = None
    """The inputs' column that says when a record happened, in epoch ms: the column `time` is made of it. None: when it arrived."""


@dataclass(frozen=True)
class Tier:
    """One stage of the pipeline: what it reads, what it makes of it, where that goes."""

    name: str
    kind: Kind
    inputs: tuple[Stream, ...]
    """New ones are added at the end: from the second on, their names are a part of their records' names."""
    transform: Transform
    outputs: tuple[Stream, ...] = ()
    """The streams that it writes; or give `sink`."""
    sink: "Sink | None" = None
    """Where it ends, in mode `batch`: a table (`sluice.sinks.table`) or a service (`sluice.sinks.http`)."""
    state: State | None = None
    """Its transform aggregates by window, joins its inputs or keeps a state of its own; its sink is a table `Latest`."""
    mode: Mode = Mode.BATCH
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    filters: bool = False
    """Its transform leaves records out on purpose (`where`, an inner join): the audit then does not take them for lost."""
    standby: Standby = Standby.NONE
    """What is on other hosts in case its driver dies: `WARM` is ready to begin; `HOT`, for realtime tiers, runs too, and leaves no gap."""
    hooks: Hooks = field(default_factory=Hooks)
    """What it does itself where it is held and where it goes on."""
    max_offsets: int = 20_000
    """The most records of one micro-batch, so that a backlog does not become one huge batch. Unit: records."""
    hangs_after: float | None = 600.0
    """The executor of a task is ended when the task has processed nothing for so long though input waits; the query then begins again. The
    limit doubles with each executor ended on one day. Choose more than one record takes in realtime, and, where a batch calls slow Python
    functions, more than a task of the batch takes: their progress shows only at the end. None: `sluice status` and the alert report the
    task, and its executor is kept. Unit: seconds."""
    quantum: Quantum = field(default_factory=Quantum)
    driver: Quantum = field(default_factory=lambda: Quantum(cpu=0.5, memory=1200, threads=1))

    @property
    def written(self) -> list[str]:
        """Name the streams that it writes, those of the quarantine included."""
        return [stream.name for stream in self.outputs] + [stream.quarantine for stream in self.inputs]


@dataclass(frozen=True)
class Pipeline:
    """All tiers; their streams tie them together."""

    tiers: tuple[Tier, ...]

    def __post_init__(self) -> None:
        """Refuse what cannot run."""
        problems = [problem for tier in self.tiers for problem in _problems(tier)] + _wiring(self.tiers)
        if problems:
            raise DeclarationError("\n".join(problems))

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Every stream that a tier reads or writes, each once, in the order of the flow."""
        found: dict[str, Stream] = {}
        for tier in self.tiers:
            for stream in (*tier.inputs, *tier.outputs):
                found.setdefault(stream.name, stream)
        return tuple(found.values())

    @property
    def sources(self) -> tuple[Stream, ...]:
        """The streams that no tier writes: records come in there."""
        written = {stream.name for tier in self.tiers for stream in tier.outputs}
        return tuple(stream for stream in self.streams if stream.name not in written)

    def tier(self, name: str) -> Tier:
        """Return the tier of that name, or say which there are."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        known = ", ".join(tier.name for tier in self.tiers)
        message = f'there is no tier "{name}"; the pipeline has {known}'
        raise DeclarationError(message)

    def spec(self, name: str) -> TierSpec:
        """Return what the control plane has to know of one tier."""
        tier = self.tier(name)
        return _spec(tier, self._distance(tier))

    def specs(self) -> tuple[TierSpec, ...]:
        """Return what the control plane has to know of each tier."""
        return tuple(self.spec(tier.name) for tier in self.tiers)

    def _distance(self, tier: Tier) -> int:
        if not tier.outputs:
            return 0
        return 1 + max((self._distance(other) for other in _followers(tier, self.tiers)), default=0)


def load(module: str) -> Pipeline:
    """Import the module that the site file names and return its `PIPELINE`."""
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"pipeline {module!r}: cannot import it: {error}; check `pipeline:` in the site file and PYTHONPATH"
        if module == "pipeline.hits":
            message += "; the example pipeline is called `hits` now"
        raise DeclarationError(message) from error
    return pipeline_of(found, module)


def pipeline_of(imported: object, module: str) -> Pipeline:
    """Return the `PIPELINE` of a module that was imported, or say that it has none."""
    found = getattr(imported, "PIPELINE", None)
    if not isinstance(found, Pipeline):
        message = f"pipeline {module!r}: the module has no PIPELINE = Pipeline(tiers=(…)); add it at its end"
        raise DeclarationError(message)
    return found


def _spec(tier: Tier, distance: int) -> TierSpec:
    return TierSpec(
        name=TierName(tier.name),
        kind=tier.kind,
        mode=tier.mode,
        delivery=tier.delivery,
        inputs=tuple(stream.name for stream in tier.inputs),
        outputs=tuple(stream.name for stream in tier.outputs),
        standby=tier.standby,
        state=tier.state is not None,
        quantum=tier.quantum,
        driver=tier.driver,
        patience=min(stream.watermarks.high.seconds for stream in tier.inputs),
        distance=distance,
    )


def _problems(tier: Tier) -> list[str]:
    name = f'tier "{tier.name}": '
    checks = {
        "its name must be lower case letters, digits and -, starting with a letter": not re.fullmatch(
            r"[a-z][a-z0-9-]*", tier.name
        ),
        "it reads nothing; name at least one stream in inputs": not tier.inputs,
        "it needs either output streams or a sink, one of them": bool(tier.outputs)
        == (tier.sink is not None),
        "a sink is written in transactions, batch by batch; set mode=Mode.BATCH": tier.sink is not None
        and tier.mode is Mode.REALTIME,
        "exactly-once needs a sink that is a table; a stream or a service is at-least-once (replays can be told by their names)": (
            tier.delivery is Delivery.EXACTLY_ONCE and not (tier.sink is not None and tier.sink.transactional)
        ),
        "at-most-once is for a sink that is a service; a table takes each record once, and a stream at least once": (
            tier.delivery is Delivery.AT_MOST_ONCE and (tier.sink is None or tier.sink.transactional)
        ),
        f"at-most-once may lose a batch when it is killed; say how many records that may be: max_offsets of {AT_RISK} at most": (
            tier.delivery is Delivery.AT_MOST_ONCE and tier.max_offsets > AT_RISK
        ),
        "its inputs have different columns; read them in tiers of their own, or give it state": (
            tier.state is None and len({stream.columns for stream in tier.inputs}) > 1
        ),
        "state goes together with a table that keeps the newest row of each key: give it both state and a sink `Latest`, or neither": (
            (tier.state is not None) != (tier.sink is not None and tier.sink.replaces)
        ),
        'its table has a column "unmatched", which is what a join calls its mark; call it otherwise': (
            tier.state is not None and tier.sink is not None and "unmatched" in tier.sink.columns
        ),
        "state.lateness is a number of seconds, at least 0": tier.state is not None
        and tier.state.lateness < 0,
        f"state.time is {tier.state and tier.state.time!r}, which is no column of every input": (
            tier.state is not None
            and tier.state.time is not None
            and not all(_has(stream, tier.state.time) for stream in tier.inputs)
        ),
        "a hot standby is for realtime tiers; set standby=Standby.WARM, or mode=Mode.REALTIME": (
            tier.standby is Standby.HOT and tier.mode is not Mode.REALTIME
        ),
        "max_offsets must be at least 1": tier.max_offsets < 1,
        f"hangs_after must be at least {SOONEST:.0f} s, or None: a task that is slow must not be ended for it": (
            tier.hangs_after is not None and tier.hangs_after < SOONEST
        ),
        "a stream that leads back must not be its first input: name the one first where records come from": (
            bool(tier.inputs) and tier.inputs[0].rounds > 0
        ),
    }
    return [name + problem for problem, wrong in checks.items() if wrong]


def _has(stream: Stream, column: str) -> bool:
    """Tell whether a stream's records have a column, as far as its declaration says; those from outside have none."""
    return (
        stream.columns is not None
        and re.search(rf"(^|,)\s*`?{re.escape(column)}`?[\s:]", stream.columns) is not None
    )


def _followers(tier: Tier, tiers: tuple[Tier, ...]) -> list[Tier]:
    """Return the tiers that go on with what a tier puts out; streams that lead back do not count."""
    onwards = {stream.name for stream in tier.outputs if not stream.rounds}
    return [other for other in tiers if onwards & {stream.name for stream in other.inputs}]


def _wiring(tiers: tuple[Tier, ...]) -> list[str]:
    names = [tier.name for tier in tiers]
    problems = [
        f'tier "{name}": declared more than once; give each tier a name of its own'
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    writers: dict[str, str] = {}
    declared: dict[str, Stream] = {}
    filled: dict[str, str] = {}
    for tier in tiers:
        problems += [
            f'tier "{tier.name}": stream "{stream.name}" is declared twice and differently; declare it once, for all tiers'
            for stream in (*tier.inputs, *tier.outputs)
            if declared.setdefault(stream.name, stream) != stream
        ]
        if tier.sink is not None and (first := filled.setdefault(tier.sink.name, tier.name)) != tier.name:
            problems.append(
                f'tier "{tier.name}": sink "{tier.sink.name}" is filled by "{first}" already; fill one of your own'
            )
        for stream in tier.outputs:
            if stream.name in writers:
                first = writers[stream.name]
                problems.append(
                    f'tier "{tier.name}": stream "{stream.name}" is written by "{first}" already; write one of your own'
                )
            writers[stream.name] = tier.name
    problems += [
        f'stream "{stream.name}": who writes it from outside chooses its partitions; give it no grouping'
        for stream in declared.values()
        if stream.grouping != Local() and stream.name not in writers
    ]
    for tier in tiers:
        for stream in tier.inputs:
            if stream.columns is not None and stream.name not in writers:
                known = ", ".join(sorted(writers)) or "none"
                problems.append(
                    f'tier "{tier.name}": no tier writes its input "{stream.name}"; streams that are written: {known}'
                )
    return problems + _cycles(tiers)


def _cycles(tiers: tuple[Tier, ...]) -> list[str]:
    after = {tier.name: [other.name for other in _followers(tier, tiers)] for tier in tiers}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> str | None:
        if name in trail:
            return " → ".join((*trail[trail.index(name) :], name))
        if name in done:
            return None
        for following in after[name]:
            found = visit(following, (*trail, name))
            if found:
                return found
        done.add(name)
        return None

    for tier in tiers:
        found = visit(tier.name, ())
        if found:
            return [
                f"the tiers {found} go in a circle; give the stream that leads back `rounds`, the most times that a record may take it"
            ]
    return []
