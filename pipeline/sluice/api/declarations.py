"""Declarations of a pipeline: streams, tiers and sinks. Pure: a reader needs no Spark session.

A tier's transform gets business columns and one struct column `lineage`, and returns both. Sluice
reads and parses the records before the transform, and adds headers and writes after it. Four
columns that a transform returns have a special meaning:

- `reason`: a text, null for good records. A record with a reason goes, with its lineage, to the
  quarantine stream of the tier's input.
- `index`: a number that grows from record to record. It distinguishes the records that a
  transform makes of one record, such as after an explode.
- `to`: the name of the stream that the record goes to, in a tier with several outputs.
- `lineage`: must be returned unchanged. In a tier that reads a stream with `rounds`,
  `lineage.round` is the number of times that the record has come back.

The transform of a tier with state (decision 16) gets one DataFrame for each input, with a
column `time` and without `lineage`. It returns the rows of its table; each row is made of many
records.
"""

import importlib.util
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sluice.api import early_spark, spark_settings
from sluice.api.column_types import columns, unknown_in_stream, unknown_in_table
from sluice.api.formats import Format, faults
from sluice.api.grouping import Fields, Global, Grouping, Local
from sluice.api.hooks import Hooks
from sluice.api.own_tables import OWN_INDEXES, OWN_TABLES
from sluice_ops.model.backpressure import Watermarks
from sluice_ops.model.ids import TierName
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Delivery, Kind, Mode, Standby, TierSpec

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sluice.api.sink import Sink

Transform = Callable[..., "DataFrame"]
"""Gets the records of the inputs, or in a tier with state one DataFrame for each input."""

QUARANTINE = ".quarantine"
"""The suffix of a stream's quarantine stream, which keeps the stream's bad records."""
MAX_AT_MOST_ONCE_BATCH = 1000
"""The largest batch of a tier that delivers at most once: a crash may lose a whole batch.
Unit: records.
"""

SHORTEST_INTERVAL, LONGEST_INTERVAL = 0.1, 2.0
"""The limits of a tier's `interval`. Unit: seconds.

A takeover leaves the turn to an owner that may still write, whichever interval its release has.
"""
MIN_HANGS_AFTER = 60.0
"""The smallest `hangs_after` of a tier. Unit: seconds."""


class DeclarationError(Exception):
    """The pipeline cannot run as declared; the message names the tier and the correction."""


@dataclass(frozen=True)
class Stream:
    """A Kafka topic with one writer: a tier, or senders outside."""

    name: str
    columns: str | None = None
    """The columns of the records, as SQL: `id string, at bigint`.

    None: records from outside. Without a `format`, they are text in one column `value`.
    """
    grouping: Grouping = field(default_factory=Local)
    """The rule that chooses the partition of each record."""
    rounds: int = 0
    """How often a record may go through this stream, if the stream leads back to an earlier tier.

    A record that would go through the stream once more goes to quarantine. 0: the stream leads to
    later tiers only.
    """
    watermarks: Watermarks = field(default_factory=Watermarks)
    """The lag at which Sluice throttles the entry, and the lag at which the entry flows again.

    A tier with `holds=False` throttles no entry.
    """
    format: Format | None = None
    """How the records are encoded: `Avro(schema)`, `Protobuf(message)` or `Bytes()`.

    None: JSON, or text from outside.
    """

    @property
    def quarantine(self) -> str:
        """The name of the stream that keeps this stream's bad records."""
        return self.name + QUARANTINE


@dataclass(frozen=True)
class State:
    """The declaration of a tier that keeps state in Spark: windows, joins, own state."""

    lateness: int
    """How long after its time a record may arrive. A later record is left out and counted as late.
    Unit: seconds.
    """
    time: str | None = None
    """The inputs' column with the time of a record, in epoch ms; the column `time` is made of it.

    None: the time of arrival.
    """


@dataclass(frozen=True)
class Tier:
    """One stage of the pipeline: it reads streams, and writes streams or one sink."""

    name: str
    kind: Kind
    inputs: tuple[Stream, ...]
    """The streams that the tier reads.

    Add a new input at the end: origins of records from the second and later inputs contain the
    input's name.
    """
    transform: Transform
    outputs: tuple[Stream, ...] = ()
    """The streams that the tier writes. A tier has outputs or a sink; with state, it may have both.

    The stream of a tier with state gets each row that changes the tier's table.
    """
    sink: "Sink | None" = None
    """What a batch tier writes: a table (`Once`, `Totals`, `Latest`), files (`ParquetFiles`,
    `JsonFiles`, `DeltaTable`), a topic outside (`KafkaTopic`), another database (`SqlTable`) or a
    service (`Post`). `Sinks` names several.
    """
    state: State | None = None
    """Set if the transform aggregates by window, joins inputs or keeps own state.

    The sink is then a table `Latest`.
    """
    mode: Mode = Mode.BATCH
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    filters: bool = False
    """True if the transform leaves records out on purpose (`where`, an inner join).

    The audit then does not report these records as lost.
    """
    standby: Standby = Standby.NONE
    """A second incarnation on other hosts, in case the tier's driver dies.

    `WARM` waits, ready to start. `HOT`, for realtime tiers, runs beside the owner and takes over
    with almost no gap.
    """
    hooks: Hooks = field(default_factory=Hooks)
    """The tier's own functions at a pause, a stop and a start."""
    max_offsets: int = 20_000
    """The largest micro-batch; a backlog is processed in several batches. Unit: records."""
    interval: float = LONGEST_INTERVAL
    """The time between the starts of two micro-batches. Unit: seconds.

    With a short interval, rows reach the table sooner. A batch of few records costs almost as much
    as one of many, so an interval of 0.5 s takes up to four times as much processor time.
    """
    hangs_after: float | None = 600.0
    """How long a task may process nothing, though input waits. Unit: seconds.

    Then Sluice ends the task's executor, and the query restarts. The limit doubles with each
    executor that Sluice ended on the same day. In a realtime tier, choose more than the time of one
    record. In a batch with slow Python functions, choose more than the time of one task: the
    progress of Python functions shows only at the end of the task. None: `sluice status` and the
    alert report the task, and its executor is kept.
    """
    holds: bool = True
    """Whether Sluice throttles the entry while this tier lags above a high watermark.

    False: the tier may lag, for example because its service is away. Its input stream keeps the
    backlog for as long as Kafka keeps records; the other tiers flow.
    """
    spark: Mapping[str, str] = field(default_factory=dict)
    """Spark settings of the tier, such as `{"spark.sql.autoBroadcastJoinThreshold": "50m"}`.

    A tier may choose `spark.sql.*` and `spark.hadoop.*`, except what Sluice itself sets.
    """
    quantum: Quantum = field(default_factory=Quantum)
    driver: Quantum = field(default_factory=lambda: Quantum(cpu=0.5, memory=1200, threads=1))
    light: bool = False
    """True if the tier's driver does the work itself, in `driver.threads` threads.

    The tier then has one JVM instead of three, and no workers: its place is that of its driver, and
    it has no share. For tiers with few records.
    """

    @property
    def sinks(self) -> "tuple[Sink, ...]":
        """The tier's sink, or each one of several."""
        return () if self.sink is None else self.sink.members

    @property
    def written(self) -> list[str]:
        """The names of the streams that the tier writes, including the quarantine streams."""
        return [stream.name for stream in self.outputs] + [stream.quarantine for stream in self.inputs]


@dataclass(frozen=True)
class JobTable:
    """A table that batch jobs write, and no tier.

    Publishing makes the table, and adds columns that are missing. The role of the operator, as
    which batch jobs run, may read and write the rows; the role of the audit may read them.
    """

    name: str
    columns: dict[str, str]
    """The columns and their SQL types, in order.

    A column that is added later must be nullable, or have a default.
    """
    key: tuple[str, ...]
    """The columns of the primary key."""


@dataclass(frozen=True)
class Pipeline:
    """All tiers of a site, joined by their streams, and the tables of its batch jobs."""

    tiers: tuple[Tier, ...]
    tables: tuple[JobTable, ...] = ()

    def __post_init__(self) -> None:
        """Raise DeclarationError with one line for each problem of the declaration."""
        _refuse(
            *(problem for tier in self.tiers for problem in _problems(tier)),
            *_wiring(self.tiers),
            *_table_problems(self.tables, self.tiers),
            *_type_problems(self.streams, self.tiers, self.tables),
        )

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Every stream that a tier reads or writes, without duplicates, in the order of tiers."""
        return _streams(self.tiers)

    @property
    def sources(self) -> tuple[Stream, ...]:
        """The streams that senders outside write, because no tier does."""
        written = {stream.name for tier in self.tiers for stream in tier.outputs}
        return tuple(stream for stream in self.streams if stream.name not in written)

    def tier(self, name: str) -> Tier:
        """Return a tier by name; DeclarationError lists the known tiers."""
        for tier in self.tiers:
            if tier.name == name:
                return tier
        known = ", ".join(tier.name for tier in self.tiers)
        message = f'there is no tier "{name}"; the pipeline has {known}'
        raise DeclarationError(message)

    def spec(self, name: str) -> TierSpec:
        """Return the description of one tier for the control plane."""
        tier = self.tier(name)
        return _spec(tier, self._distance(tier))

    def specs(self) -> tuple[TierSpec, ...]:
        """Return the descriptions of all tiers for the control plane."""
        return tuple(self.spec(tier.name) for tier in self.tiers)

    def _distance(self, tier: Tier) -> int:
        if not tier.outputs:
            return 0
        return 1 + max((self._distance(reader) for reader in _readers(tier, self.tiers)), default=0)


def check_alone(tier: Tier) -> None:
    """Refuse what is wrong with one tier, whatever its pipeline.

    Raise DeclarationError with one line for each problem.
    """
    _refuse(
        *_problems(tier),
        *_table_problems((), (tier,)),
        *_type_problems(_streams((tier,)), (tier,), ()),
    )


def _refuse(*problems: str) -> None:
    if problems:
        raise DeclarationError("\n".join(problems))


def _streams(tiers: tuple[Tier, ...]) -> tuple[Stream, ...]:
    """Return the streams of all tiers, without duplicates, in the order of tiers."""
    streams: dict[str, Stream] = {}
    for tier in tiers:
        for stream in (*tier.inputs, *tier.outputs):
            streams.setdefault(stream.name, stream)
    return tuple(streams.values())


def load(module: str) -> Pipeline:
    """Import the module that the site file names, and return its `PIPELINE`.

    Raise DeclarationError if the module is missing, fails or has no pipeline.
    """
    try:
        imported = importlib.import_module(module)
    except DeclarationError:
        raise
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        reason = _missing(module, error) if missing else _failure(module, error)
        message = f"pipeline {module!r}: {reason}"
        raise DeclarationError(message) from error
    return pipeline_of(imported, module)


def _missing(module: str, error: Exception) -> str:
    reason = (
        f"the module cannot be imported: {error}; "
        "check `pipeline:` in the site file, and run this in the project's folder"
    )
    former = "; the example pipeline is now called `hits`" if module == "pipeline.hits" else ""
    return reason + former


def _failure(module: str, error: Exception) -> str:
    """Return the last line of the pipeline's own code that ran, and the error or advice."""
    spec = importlib.util.find_spec(module.split(".", maxsplit=1)[0])
    folders = list((spec and spec.submodule_search_locations) or [])
    lines = [
        f"{frame.filename}, line {frame.lineno}: "
        for frame in traceback.extract_tb(error.__traceback__)
        if any(Path(frame.filename).is_relative_to(folder) for folder in folders)
        or (spec is not None and frame.filename == spec.origin)
    ]
    reason = early_spark.advice(error) or ": ".join(filter(None, (type(error).__name__, str(error))))
    return f"{(lines or [''])[-1]}{reason}"


def pipeline_of(imported: object, module: str) -> Pipeline:
    """Return the `PIPELINE` of an imported module; DeclarationError if the module has none."""
    pipeline = getattr(imported, "PIPELINE", None)
    if not isinstance(pipeline, Pipeline):
        message = (
            f"pipeline {module!r}: the module has no PIPELINE; "
            "add PIPELINE = Pipeline(tiers=(…)) at the module's end"
        )
        raise DeclarationError(message)
    return pipeline


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
        light=tier.light,
        quantum=tier.quantum,
        driver=tier.driver,
        holds=tier.holds,
        patience=min(stream.watermarks.high.seconds for stream in tier.inputs),
        distance=distance,
    )


def _problems(tier: Tier) -> list[str]:
    checks = {
        "the name must be lower case letters, digits and -, and start with a letter": not re.fullmatch(
            r"[a-z][a-z0-9-]*", tier.name
        ),
        "the tier reads nothing; name at least one stream in inputs": not tier.inputs,
        "a tier needs either output streams or a sink; give one of them": bool(tier.outputs)
        == (tier.sink is not None)
        and not (tier.outputs and tier.state is not None),
        "a light tier has no workers; leave out its quantum, and set its driver": tier.light
        and tier.quantum != Quantum(),
        "a sink is written in micro-batches; set mode=Mode.BATCH": tier.sink is not None
        and tier.mode is Mode.REALTIME,
        (
            "exactly-once needs a sink that is a table, files or a Kafka topic outside; "
            "a stream or a service gets records at least once (their origins identify duplicates)"
        ): (tier.delivery is Delivery.EXACTLY_ONCE and not _takes_once(tier)),
        (
            "at-most-once is for a sink that is a service, alone in its tier; "
            "tables, files and topics outside take each record exactly once, and a stream at least once"
        ): (tier.delivery is Delivery.AT_MOST_ONCE and (len(tier.sinks) != 1 or _takes_once(tier))),
        (
            "at-most-once may lose one batch when the driver is killed; "
            f"limit the batch: set max_offsets to at most {MAX_AT_MOST_ONCE_BATCH}"
        ): (tier.delivery is Delivery.AT_MOST_ONCE and tier.max_offsets > MAX_AT_MOST_ONCE_BATCH),
        "the inputs have different columns; read each input in its own tier, or give the tier state": (
            tier.state is None and len({stream.columns for stream in tier.inputs}) > 1
        ),
        "the inputs have different formats; read each input in its own tier, or give the tier state": (
            tier.state is None and len({stream.format for stream in tier.inputs}) > 1
        ),
        (
            "state needs a table that keeps the newest row of each key, and such a table needs state; "
            "give the tier both state and a sink `Latest`, or neither"
        ): ((tier.state is not None) != (tier.sink is not None and tier.sink.replaces)),
        **_problems_of_changes(tier),
        'the table has a column "unmatched", the name of the column that joins add; rename the column': (
            tier.state is not None and tier.sink is not None and "unmatched" in tier.sink.columns
        ),
        "state.lateness is a number of seconds, at least 0": tier.state is not None
        and tier.state.lateness < 0,
        f"state.time is {tier.state and tier.state.time!r}, which is not a column of every input": (
            tier.state is not None
            and tier.state.time is not None
            and not all(_has(stream, tier.state.time) for stream in tier.inputs)
        ),
        "a hot standby is for realtime tiers; set standby=Standby.WARM, or mode=Mode.REALTIME": (
            tier.standby is Standby.HOT and tier.mode is not Mode.REALTIME
        ),
        "max_offsets must be at least 1": tier.max_offsets < 1,
        f"interval must be from {SHORTEST_INTERVAL:g} to {LONGEST_INTERVAL:g} s": not (
            SHORTEST_INTERVAL <= tier.interval <= LONGEST_INTERVAL
        ),
        "interval is for micro-batches; leave it out, or set mode=Mode.BATCH": (
            tier.mode is Mode.REALTIME and tier.interval != Tier.interval
        ),
        (
            f"hangs_after must be at least {MIN_HANGS_AFTER:.0f} s, or None; "
            "otherwise Sluice would end tasks that are only slow"
        ): (tier.hangs_after is not None and tier.hangs_after < MIN_HANGS_AFTER),
        "the first input must not be a stream that leads back; name the stream of new records first": (
            bool(tier.inputs) and tier.inputs[0].rounds > 0
        ),
    }
    failed = [problem for problem, fails in checks.items() if fails]
    return [f'tier "{tier.name}": {problem}' for problem in (*failed, *spark_settings.problems(tier.spark))]


def _problems_of_changes(tier: Tier) -> dict[str, bool]:
    """Return what may be wrong with the stream of a tier with state, and whether it is."""
    if tier.state is None or tier.sink is None:
        return {}
    return {
        "a tier with state writes one stream, which gets the changes of its table; name one output": (
            len(tier.outputs) > 1
        ),
        "a row of a table has no input record that could choose its partition; "
        "give the stream the grouping Fields(…) with columns of the table, or Global()": (
            any(not isinstance(stream.grouping, Fields | Global) for stream in tier.outputs)
        ),
        "a stream that leads back cannot come from a tier with state: its records are new ones, so "
        "nobody counts their rounds; remove `rounds`": any(stream.rounds for stream in tier.outputs),
        **{
            f'the stream "{stream.name}" gets rows of the table "{tier.sink.name}", which lacks {names}; '
            "name columns of the table only": True
            for stream in tier.outputs
            if (names := ", ".join(_lacks(tier.sink, stream)))
        },
    }


def _lacks(table: "Sink", stream: Stream) -> list[str]:
    """Return the columns of a stream that a table lacks."""
    try:
        wanted = [] if stream.columns is None else [*columns(stream.columns)]
    except ValueError as error:
        return [str(error)]
    grouped = stream.grouping.columns if isinstance(stream.grouping, Fields) else ()
    return [name for name in dict.fromkeys((*wanted, *grouped)) if name not in table.columns]


def _takes_once(tier: Tier) -> bool:
    """Tell whether the tier's sinks take each record exactly once."""
    return bool(tier.sinks) and all(sink.transactional or sink.exactly_once for sink in tier.sinks)


def _has(stream: Stream, column: str) -> bool:
    """Tell whether the declaration of a stream names a column; a stream from outside names none."""
    return (
        stream.columns is not None
        and re.search(rf"(^|,)\s*`?{re.escape(column)}`?[\s:]", stream.columns) is not None
    )


def _readers(tier: Tier, tiers: tuple[Tier, ...]) -> list[Tier]:
    """Return the tiers that read a tier's outputs; streams that lead back do not count."""
    onwards = {stream.name for stream in tier.outputs if not stream.rounds}
    return [other for other in tiers if onwards & {stream.name for stream in other.inputs}]


def _wiring(tiers: tuple[Tier, ...]) -> list[str]:
    names = [tier.name for tier in tiers]
    problems = [
        f'tier "{name}": declared more than once; give each tier its own name'
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    writers: dict[str, str] = {}
    declared: dict[str, Stream] = {}
    for tier in tiers:
        problems += [
            (
                f'tier "{tier.name}": stream "{stream.name}" has two different declarations; '
                "declare the stream once, for all tiers"
            )
            for stream in (*tier.inputs, *tier.outputs)
            if declared.setdefault(stream.name, stream) != stream
        ]
        for stream in tier.outputs:
            if stream.name in writers:
                problems.append(
                    f'tier "{tier.name}": tier "{writers[stream.name]}" already writes the stream '
                    f'"{stream.name}"; give each tier its own output streams'
                )
            writers[stream.name] = tier.name
    problems += [
        f'stream "{stream.name}": its senders outside choose the partitions; remove the grouping'
        for stream in declared.values()
        if stream.grouping != Local() and stream.name not in writers
    ]
    for tier in tiers:
        for stream in tier.inputs:
            if stream.columns is not None and stream.name not in writers:
                known = ", ".join(sorted(writers)) or "none"
                problems.append(
                    f'tier "{tier.name}": no tier writes the input "{stream.name}"; '
                    f"streams that tiers write: {known}"
                )
    problems += [
        f'tier "{tier.name}": no tier writes its inputs, so its lag throttles no entry; remove holds=False'
        for tier in tiers
        if not tier.holds and not any(stream.name in writers for stream in tier.inputs)
    ]
    return [*problems, *_sinks_of_two(tiers), *_cycles(tiers)]


def _sinks_of_two(tiers: tuple[Tier, ...]) -> Iterator[str]:
    """Return the sinks and folders that two tiers write."""
    sink_writers: dict[str, str] = {}
    folder_writers: dict[str, str] = {}
    for tier in tiers:
        for sink in tier.sinks:
            if (first := sink_writers.setdefault(sink.name, tier.name)) != tier.name:
                yield (
                    f'tier "{tier.name}": tier "{first}" already writes the sink "{sink.name}"; '
                    "give each tier its own sink"
                )
            for folder in sink.folders:
                if (first := folder_writers.setdefault(folder, tier.name)) != tier.name:
                    yield (
                        f'tier "{tier.name}": tier "{first}" already writes files into the folder '
                        f'"{folder}", and files of one would replace files of the other; '
                        "give each tier its own folder"
                    )


def _table_problems(tables: tuple[JobTable, ...], tiers: tuple[Tier, ...]) -> list[str]:
    """Return what is wrong with the names that the pipeline's tables have in PostgreSQL."""
    problems: list[str] = []
    taken = dict.fromkeys(OWN_TABLES, "one of Sluice's own tables")
    taken |= dict.fromkeys(OWN_INDEXES, "an index of Sluice's own tables")
    sinks = {sink.name: (tier.name, sink) for tier in reversed(tiers) for sink in reversed(tier.sinks)}
    for tier, sink in reversed(sinks.values()):
        relations = [*(("table", name) for name in sink.tables), *(("index", name) for name in sink.indexes)]
        problems += [
            f'tier "{tier}": the sink\'s {kind} "{name}" has the name of {taken[name]}; '
            "give the sink another name"
            for kind, name in relations
            if name in taken
        ]
        taken = {name: f'the {kind} that tier "{tier}" writes' for kind, name in relations} | taken
    for table in tables:
        names = (table.name, f"{table.name}_pkey")
        problems += [
            f'table "{table.name}": "{name}" is the name of {taken[name]}; give the table another name'
            for name in names
            if name in taken
        ]
        taken |= dict.fromkeys(names, "another table of the pipeline")
        if not table.key or not {*table.key} <= table.columns.keys():
            problems.append(f'table "{table.name}": key names one or more of its columns')
    return problems


def _type_problems(
    streams: tuple[Stream, ...], tiers: tuple[Tier, ...], tables: tuple[JobTable, ...]
) -> list[str]:
    """Return the columns of streams and tables whose types do not exist."""
    declared = {stream.name: stream.columns for stream in streams if stream.columns is not None}
    sinks = {sink.name: sink.columns for tier in tiers for sink in tier.sinks if sink.transactional}
    kinds_by_table = sinks | {table.name: table.columns for table in tables}
    written = {stream.name for tier in tiers for stream in tier.outputs}
    return [
        *(
            f'stream "{name}": {fault}'
            for name, text in declared.items()
            for fault in unknown_in_stream(text)
        ),
        *(
            f'stream "{stream.name}": {fault}'
            for stream in streams
            for fault in faults(stream.format, stream.columns, is_written=stream.name in written)
        ),
        *(
            f'table "{name}": {fault}'
            for name, kinds in kinds_by_table.items()
            for fault in unknown_in_table(kinds)
        ),
    ]


def _cycles(tiers: tuple[Tier, ...]) -> list[str]:
    readers = {tier.name: [other.name for other in _readers(tier, tiers)] for tier in tiers}
    done: set[str] = set()

    def cycle_from(name: str, trail: tuple[str, ...]) -> str | None:
        if name in trail:
            return " → ".join((*trail[trail.index(name) :], name))
        if name in done:
            return None
        for reader in readers[name]:
            if cycle := cycle_from(reader, (*trail, name)):
                return cycle
        done.add(name)
        return None

    for tier in tiers:
        if cycle := cycle_from(tier.name, ()):
            problem = (
                f"the tiers {cycle} form a circle; set `rounds` on the stream that leads back: "
                "the number of times that a record may take the stream"
            )
            return [problem]
    return []
