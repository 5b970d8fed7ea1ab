"""Runs a tier's transform on given records in a local Spark session: for unit tests of a pipeline.

    from sluice.testing import run

    def test_a_buy_passes():
        result = run(BUYS_TIER, [{"user": "anna", "kind": "buy", "at": 1}])
        assert [row["user"] for row in result.rows] == ["anna"]

`run` is for tiers without state, `run_batches` for tiers with state. Records pass the same steps as
in a tier's driver: Sluice adds the lineage, parses the records and checks the result. A transform
that publishing would refuse raises DeclarationError. No service is needed. The first call starts
Spark, which takes some seconds; later calls use the same session.
"""

import base64
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import SparkSession

from sluice import releases
from sluice.api.declarations import DeclarationError, Stream, Tier, check_alone
from sluice.api.formats import Bytes, SchemaFormat, schema_words
from sluice.checks.chosen_settings import with_settings_of
from sluice.checks.operators import KAFKA
from sluice.checks.shapes import columns
from sluice.commands.validation import (
    HEAP,
    SETTINGS,
    silence_repeating_loggers,
    use_gateway,
    validate_tier,
)
from sluice.dependencies.build import build
from sluice.dependencies.environment import Environment
from sluice.dependencies.lock import JARS
from sluice.driver.spark.jvm import Jvm, launch
from sluice.driver.spark.session import open_session
from sluice.records.formats import codec
from sluice.records.lineage import REASON, TO, business, collected, transformed
from sluice.records.routing import with_reason
from sluice.records.state_inputs import output_mode, transformed_with_state
from sluice_ops.site import project, site_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Record", "Result", "run", "run_batches", "session"]

Columns: TypeAlias = Mapping[str, Any]
"""A record of a stream with columns. A missing column is null."""


@dataclass(frozen=True)
class Record:
    """A record that arrives at a given time."""

    value: Columns | str | bytes
    """Columns; or text or bytes in a stream from outside; or bytes in a stream with a format."""
    arrived: datetime
    """The time of arrival in the pipeline, with a time zone."""


Records: TypeAlias = Sequence[Record | Columns | str | bytes]
Inputs: TypeAlias = Records | Mapping[str, Records]
"""The records of the tier's only input; with several inputs, the records by the stream's name."""

_SQL_SETTINGS = {
    **{name: value for name, value in SETTINGS.items() if name.startswith("spark.sql.")},
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
}
"""Settings of a driver's session on which results depend; one shuffle partition is enough here."""
_CHECKED: list[Tier] = []
_JVMS: list[tuple[Jvm, Any]] = []
"""The JVM of the local session, and PySpark's gateway to an earlier JVM.

They are kept here, because a JVM ends with its object.
"""


@dataclass(frozen=True)
class Result:
    """The rows that a tier without state makes of its records, in order and without lineage."""

    rows: list[dict[str, Any]]
    """Rows for the sink or the output streams; with several outputs, `to` names the stream."""
    quarantined: list[dict[str, Any]]
    """Rows for quarantine; the column `reason` says why."""


@cache
def session() -> SparkSession:
    """Return the active Spark session, or start a local one that lasts as long as the process."""
    spark = SparkSession.getActiveSession()
    if spark is None:
        jars = _jars()  # before the JVM, which an error would leave behind
        jvm = launch(HEAP, project.home())
        _JVMS.append((jvm, use_gateway(None)))
        spark = open_session("local[1]", SETTINGS, jvm, jars)
        spark.sparkContext.setLogLevel("ERROR")
        silence_repeating_loggers()
    for name, value in _SQL_SETTINGS.items():
        spark.conf.set(name, value)
    return spark


def _jars() -> Environment | None:
    """Return the jars of the project's pipeline, as in a release. Packages are the test's own."""
    try:
        code = releases.source(site_file.load(project.site_path()).pipeline)
    except (site_file.SiteError, DeclarationError):  # a test outside of a project
        return None
    built = build(code) if (code / JARS).exists() else None
    return None if built is None else Environment(built.folder, None)


def run(tier: Tier, records: Inputs) -> Result:
    """Return what a tier without state makes of `records`, all in one batch.

    Raise DeclarationError if publishing would refuse the tier, or if a record has a column that its
    stream lacks.
    """
    if tier.state is not None:
        message = f'tier "{tier.name}" has state: use run_batches, which returns the rows of each batch'
        raise DeclarationError(message)
    _check(tier)
    kafka_records = [
        record
        for stream, own in _by_stream(tier, records)
        for record in _kafka_records(own, stream, tier, first=0)
    ]
    with with_settings_of(tier, session()):
        result = transformed(_frame(kafka_records), tier)
        # a sink adds reasons of its own, such as a null in the key of its table
        names = business(result, tier) + ([TO] if len(tier.outputs) > 1 else [])
        rows = collected(result, tier) if tier.sink is not None else with_reason(result, tier)
        dicts = _rows(rows.select(*names, REASON))
    return Result(
        rows=[_without(row, REASON) for row in dicts if row[REASON] is None],
        quarantined=[row for row in dicts if row[REASON] is not None],
    )


def run_batches(tier: Tier, *batches: Inputs) -> list[list[dict[str, Any]]]:
    """Return, for each batch of records, the rows that a tier with state writes to its table.

    The state lasts from batch to batch. A record arrives at its `State.time` (milliseconds) unless
    it is a `Record`; an arrival without such a time is now. The watermark of a batch takes effect
    in the next one. So does a join's row without a partner: give a later, perhaps empty, batch.
    """
    if tier.state is None:
        message = f'tier "{tier.name}" has no state: use run'
        raise DeclarationError(message)
    _check(tier)
    spark = session()
    written: list[list[dict[str, Any]]] = []
    with (
        with_settings_of(tier, spark),
        tempfile.TemporaryDirectory(prefix="sluice-testing-") as folder,
    ):
        folders = {stream.name: Path(folder) / stream.name for stream in tier.inputs}
        for path in folders.values():
            path.mkdir()
        frames = [spark.readStream.schema(KAFKA).parquet(str(path)) for path in folders.values()]
        result = transformed_with_state(frames, tier)
        mode = output_mode(result)
        next_offsets = dict.fromkeys(folders, 0)
        for batch in batches:
            for stream, own in _by_stream(tier, batch):
                records = _kafka_records(own, stream, tier, first=next_offsets[stream.name])
                next_offsets[stream.name] += len(records)
                _frame(records).write.mode("append").parquet(str(folders[stream.name]))
            rows: list[dict[str, Any]] = []

            def take(frame: "DataFrame", _: int, rows: list[dict[str, Any]] = rows) -> None:
                rows += _rows(frame)

            query = (
                result.writeStream.outputMode(mode)
                .foreachBatch(take)
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            written.append(rows)
    return written


def _without(row: dict[str, Any], column: str) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != column}


def _check(tier: Tier) -> None:
    """Refuse what publishing would refuse of this tier; each tier is checked once."""
    if not any(checked is tier for checked in _CHECKED):
        check_alone(tier)
        validate_tier(session(), tier)
        _CHECKED.append(tier)


def _by_stream(tier: Tier, inputs: Inputs) -> Iterator[tuple[Stream, Records]]:
    """Yield each input of the tier with its records."""
    names = [stream.name for stream in tier.inputs]
    if not isinstance(inputs, Mapping):
        if len(names) > 1:
            message = f'tier "{tier.name}" reads {", ".join(names)}: give a dict of records by stream'
            raise DeclarationError(message)
        inputs = {names[0]: inputs}
    if unknown := sorted(inputs.keys() - set(names)):
        message = f'tier "{tier.name}" does not read {", ".join(unknown)}, but {", ".join(names)}'
        raise DeclarationError(message)
    for stream in tier.inputs:
        yield stream, inputs.get(stream.name, ())


def _kafka_records(records: Records, stream: Stream, tier: Tier, first: int) -> list[dict[str, Any]]:
    """Return the records as Kafka would store them, from the offset `first` on."""
    column_names = _column_names(stream)
    values = [record.value if isinstance(record, Record) else record for record in records]
    if column_names is not None:
        for value in values:
            if not (isinstance(value, bytes) and stream.format is not None):
                _refuse_columns(value, stream, column_names)
    time = None if tier.state is None else tier.state.time
    kafka_records = []
    for offset, (record, value) in enumerate(zip(records, _in_format(values, stream), strict=True), first):
        kafka_records.append(
            dict.fromkeys(("key", "headers"))
            | {"value": value, "topic": stream.name, "partition": 0, "offset": offset}
            | {"timestamp": _arrival(record, time), "timestampType": 1}
        )
    return kafka_records


def _column_names(stream: Stream) -> list[str] | None:
    if isinstance(stream.format, SchemaFormat):
        return [*codec(stream.format).columns(session())]
    if isinstance(stream.format, Bytes):
        return None
    return None if stream.columns is None else list(columns(stream.columns))


def _in_format(values: Sequence[Columns | str | bytes], stream: Stream) -> list[bytes]:
    """Return the bytes of records in the format of their stream; bytes stay as they are."""
    written = [_bytes(value) for value in values]
    if not isinstance(stream.format, SchemaFormat):
        return written
    places = [place for place, value in enumerate(values) if isinstance(value, Mapping)]
    if places:
        texts = (written[place].decode() for place in places)
        records = codec(stream.format).of_json(session(), texts)
        for place, record in zip(places, records, strict=True):
            if isinstance(record, str):
                message = (
                    f'"{stream.name}": {values[place]!r} does not fit the stream\'s '
                    f"{schema_words(stream.format)}: {record}"
                )
                raise DeclarationError(message)
            written[place] = record
    return written


def _refuse_columns(value: Columns | str | bytes, stream: Stream, column_names: list[str]) -> None:
    if not isinstance(value, Mapping):
        message = f'a record of "{stream.name}" is a dict of columns, not {type(value).__name__}'
        raise DeclarationError(message)
    if unknown := sorted(value.keys() - set(column_names)):
        message = f'"{stream.name}" has no column {", ".join(unknown)}; it has {", ".join(column_names)}'
        raise DeclarationError(message)


def _arrival(record: Record | Columns | str | bytes, time: str | None) -> datetime:
    if isinstance(record, Record):
        return record.arrived
    millis = record.get(time) if time is not None and isinstance(record, Mapping) else None
    return datetime.fromtimestamp(millis / 1000, UTC) if isinstance(millis, int) else datetime.now(UTC)


def _bytes(value: Columns | str | bytes) -> bytes:
    text = json.dumps(value, default=_json) if isinstance(value, Mapping) else value
    return text.encode() if isinstance(text, str) else text


def _json(value: object) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()  # as Spark reads a binary column
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    message = f"{type(value).__name__} has no place in a record: give text, numbers, lists or dicts"
    raise TypeError(message)


def _frame(records: Iterable[dict[str, Any]]) -> "DataFrame":
    return session().createDataFrame(list(records), KAFKA).coalesce(1)


def _rows(frame: "DataFrame") -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in frame.collect()]
