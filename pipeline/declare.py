"""How a pipeline is declared: streams, tiers, and the sinks at its end. Pure, so that publishing needs no Spark session.

A tier's transform gets plain business columns and one struct column `lineage`, and returns the same: the platform reads, parses, stamps
and writes around it. Three columns have a meaning of their own when a transform returns them:

- `reason`: text, null for good records; a record with a reason goes to the quarantine stream of the tier's input, with its lineage;
- `index`: a number that tells records apart that were made of the same one (after an explode);
- `lineage`: has to be kept, as it came.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ops.model.ids import TierName
from ops.model.resources import Quantum
from ops.model.tier import Delivery, Kind, Mode, TierSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.sinks.table import Table

Transform = Callable[["DataFrame"], "DataFrame"]

QUARANTINE = ".quarantine"
"""What is added to a stream's name for the records of it that no tier could use."""


class DeclarationError(Exception):
    """The pipeline cannot be run as it is declared; the message names the tier and what to change."""


@dataclass(frozen=True)
class Stream:
    """A Kafka topic between tiers."""

    name: str
    columns: str | None = None
    """What its JSON records hold, as SQL: `id string, at bigint`. None: records from outside, as they are, in one column `value`."""

    @property
    def quarantine(self) -> str:
        """The stream that takes the bad records of this one."""
        return self.name + QUARANTINE


@dataclass(frozen=True)
class Tier:
    """One stage of the pipeline: what it reads, what it makes of it, where that goes."""

    name: str
    kind: Kind
    inputs: tuple[Stream, ...]
    transform: Transform
    output: Stream | None = None
    """The stream that it writes; or give `sink`."""
    sink: "Table | None" = None
    """The table that it fills, in mode `batch`."""
    mode: Mode = Mode.BATCH
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    grouping: str | None = None
    """The column whose equal values stay together, in order: key and partition of the output. None: the input's key and partition."""
    filters: bool = False
    """Its transform leaves records out on purpose (`where`, an inner join): the audit then does not take them for lost."""
    max_offsets: int = 20_000
    """The most records of one micro-batch, so that a backlog does not become one huge batch. Unit: records."""
    quantum: Quantum = field(default_factory=Quantum)
    driver: Quantum = field(default_factory=lambda: Quantum(cpu=0.5, memory=1200, threads=1))


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
            for stream in (*tier.inputs, *((tier.output,) if tier.output else ())):
                found.setdefault(stream.name, stream)
        return tuple(found.values())

    @property
    def sources(self) -> tuple[Stream, ...]:
        """The streams that no tier writes: records come in there."""
        written = {tier.output.name for tier in self.tiers if tier.output}
        return tuple(stream for stream in self.streams if stream.name not in written)

    def tier(self, name: str) -> Tier:
        """Return the tier of that name, or say which there are."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        known = ", ".join(tier.name for tier in self.tiers)
        message = f'there is no tier "{name}"; the pipeline has {known}'
        raise DeclarationError(message)

    def specs(self) -> tuple[TierSpec, ...]:
        """Return what the control plane has to know of each tier."""
        return tuple(_spec(tier, self._distance(tier)) for tier in self.tiers)

    def _distance(self, tier: Tier) -> int:
        if tier.output is None:
            return 0
        readers = [other for other in self.tiers if tier.output.name in {stream.name for stream in other.inputs}]
        return 1 + max((self._distance(other) for other in readers), default=0)


def load(module: str) -> Pipeline:
    """Import the module that the site file names and return its `PIPELINE`."""
    try:
        found = getattr(importlib.import_module(module), "PIPELINE", None)
    except ModuleNotFoundError as error:
        message = f"pipeline {module!r}: cannot import it: {error}; check `pipeline:` in the site file and PYTHONPATH"
        raise DeclarationError(message) from error
    if not isinstance(found, Pipeline):
        message = f"pipeline {module!r}: the module has no PIPELINE = Pipeline(tiers=(…)); add it at its end"
        raise DeclarationError(message)
    return found


def _spec(tier: Tier, distance: int) -> TierSpec:
    written = (tier.output.name,) if tier.output else ()
    return TierSpec(
        name=TierName(tier.name),
        kind=tier.kind,
        mode=tier.mode,
        delivery=tier.delivery,
        inputs=tuple(stream.name for stream in tier.inputs),
        outputs=written,
        quantum=tier.quantum,
        driver=tier.driver,
        distance=distance,
    )


def _problems(tier: Tier) -> list[str]:
    name = f'tier "{tier.name}": '
    checks = {
        "its name must be lower case letters, digits and -, starting with a letter": not re.fullmatch(r"[a-z][a-z0-9-]*", tier.name),
        "it reads nothing; name at least one stream in inputs": not tier.inputs,
        "it needs either an output stream or a sink, one of them": (tier.output is None) == (tier.sink is None),
        "a sink is written in transactions, batch by batch; set mode=Mode.BATCH": tier.sink is not None and tier.mode is Mode.REALTIME,
        "exactly-once needs a sink that is a table; a stream is at-least-once (replays are dropped downstream)": (
            tier.delivery is Delivery.EXACTLY_ONCE and tier.sink is None
        ),
        "its inputs have different columns; read them in tiers of their own": len({stream.columns for stream in tier.inputs}) > 1,
        "max_offsets must be at least 1": tier.max_offsets < 1,
    }
    return [name + problem for problem, wrong in checks.items() if wrong]


def _wiring(tiers: tuple[Tier, ...]) -> list[str]:
    names = [tier.name for tier in tiers]
    problems = [
        f'tier "{name}": declared more than once; give each tier a name of its own' for name in sorted(set(names)) if names.count(name) > 1
    ]
    writers: dict[str, str] = {}
    for tier in tiers:
        if tier.output is None:
            continue
        if tier.output.name in writers:
            first = writers[tier.output.name]
            problems.append(f'tier "{tier.name}": stream "{tier.output.name}" is written by "{first}" already; write one of your own')
        writers[tier.output.name] = tier.name
    for tier in tiers:
        for stream in tier.inputs:
            if stream.columns is not None and stream.name not in writers:
                known = ", ".join(sorted(writers)) or "none"
                problems.append(f'tier "{tier.name}": no tier writes its input "{stream.name}"; streams that are written: {known}')
    return problems + _cycles(tiers)


def _cycles(tiers: tuple[Tier, ...]) -> list[str]:
    after = {
        tier.name: [other.name for other in tiers if tier.output and tier.output.name in {stream.name for stream in other.inputs}]
        for tier in tiers
    }
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
            return [f"the tiers {found} go in a circle; records would never leave the pipeline"]
    return []
