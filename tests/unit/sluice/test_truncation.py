"""A partition is cut back while its topic keeps its id: in any sequence of events, no record is
skipped silently.
"""

import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice.api.declarations import Stream, Tier
from sluice.driver.engine import streams as into_streams
from sluice.driver.engine.batch_writer import Stored
from sluice.driver.engine.settings import EngineConfig
from sluice.driver.engine.streams import StreamsEngine
from sluice.kafka import output_tail
from sluice.kafka.positions import OutputRecord, RecordsGoneError
from sluice.kafka.reader import Bounds, Seen
from sluice.kafka.stream_identity import EVERY_SECONDS, SameStreams, Watch
from sluice.kafka.truncation import ReadAgainError, is_same
from sluice.sinks.batches import Batch, LastBatch
from sluice_ops.model.incarnation import Receipt
from sluice_ops.model.tier import Kind
from tests.unit.sluice.fake_control import FakeControl
from tests.unit.sluice.fake_identities import Answers
from tests.unit.sluice.fake_workers import FakeWorkers
from tests.unit.sluice.test_sink_engine import FakeSinkEngine, engine_config, stored

RAW = "raw/0"
NO_LOSS = 0

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("elect"), st.sampled_from([NO_LOSS, NO_LOSS, 1, 3, 100])),
        st.tuples(st.just("read"), st.integers(1, 6)),
        st.tuples(st.just("look"), st.just(0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("write"), st.just(0)),
        st.tuples(st.sampled_from(["settle", "expire"]), st.just(0)),
    ),
    max_size=30,
)
LOOKS = [("look", 0)] * 4
AHEAD = [("append", 3), ("read", 3), ("elect", 1), ("append", 2), ("read", 1)]
"""The tier reads from a new leader before it knows of the election."""
QUIET = [
    ("append", 200),
    *LOOKS,
    ("write", 0),
    ("read", 1000),
    ("write", 0),
    ("read", 1000),
    ("write", 0),
    *LOOKS,
]


class Log(Answers):
    """One partition.

    Each record is a unique number, kept with the epoch of the leader that stored it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[int, int]] = []
        self.made = 0
        self.gone: set[int] = set()
        self.out: list[Seen] = []
        """The output of a tier that reads this partition."""

    def append(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            self.records.append((self.epoch, self.made))

    def elect(self, lost: int) -> None:
        self.epoch += 1
        if lost:
            self.gone |= {number for _, number in self.records[-lost:]}
            del self.records[-lost:]

    @property
    def numbers(self) -> list[int]:
        return [number for _, number in self.records]

    def resumed(self, positions: Mapping[str, int], epochs: Mapping[str, int]) -> dict[str, int]:
        ends = {
            partition: sum(epoch <= epochs[partition] for epoch, _ in self.records) for partition in positions
        }
        return {partition: min(position, ends[partition]) for partition, position in positions.items()}

    # the methods that an engine calls on its streams

    def renew(self) -> None: ...

    def places(self, _topics: Collection[str]) -> list[str]:
        return [RAW]

    def partitions(self, _topic: str) -> int:
        return 1

    def bounds(self, topics: Collection[str]) -> Bounds:
        ends = {f"{topic}/0": len(self.records if topic == "raw" else self.out) for topic in topics}
        return Bounds(dict.fromkeys(ends, 0), ends)


class IntoTable:
    """A tier with a sink: its real checks, with lists as ledger and table."""

    def __init__(self, log: Log, *, checked: bool = True) -> None:
        self.log, self.checked = log, checked
        self.last: LastBatch | None = None
        self.written: list[int] = []
        self.batch: tuple[int, list[int]] | None = None
        self.restart()

    def restart(self) -> None:
        tier = Tier(
            "load",
            Kind.OUTBOUND,
            (Stream("raw", "who string"),),
            lambda raw: raw,
            sink=cast("Any", SimpleNamespace(name="loaded")),
        )
        self.query = FakeSinkEngine(engine_config(tier, 3, self.log))
        self.query._writer.watch = Watch(self.log if self.checked else None)
        self.query.last, self.batch = self.last, None
        self.query._records.write = self._write  # type: ignore[method-assign]
        self.query.run()

    def read(self, count: int) -> None:
        """Read a batch from the end of the last one.

        A batch that is not written yet stays as it was read.
        """
        if self.batch is None:
            begin = 0 if self.last is None else self.last.ends[RAW]
            if begin > len(self.log.records):
                self.restart()  # the query fails because its position is behind the end
            self.batch = (begin, self.log.numbers[begin : begin + count])

    def write(self) -> None:
        if self.batch is None or not self.batch[1]:
            self.batch = None
            return
        begin, numbers = self.batch
        try:
            self.query.put(Batch({RAW: begin}, {RAW: begin + len(numbers)}))
        except ReadAgainError:
            self.restart()

    def _write(self, _rows: object, batch: Batch, _before: float | None) -> Stored:
        assert self.batch is not None
        self.written += self.batch[1]
        self.last = self.query.last = LastBatch(0, batch.ends, 0.0, 0.0, batch.streams, batch.epochs)
        self.batch = None
        return stored()

    def look(self) -> None: ...

    def expire(self) -> None: ...

    def settle(self) -> None: ...

    def took(self) -> list[int]:
        return self.written


class FakeStreamsEngine(StreamsEngine):
    """An engine that starts no query; the test reads instead."""

    def _start(self, *_: object, **_more: object) -> Any:
        return SimpleNamespace(isActive=True, stop=lambda: None, exception=lambda: None)


class IntoStream:
    """A tier into a stream: its real start and looks, with a list as output.

    With `filters`, it leaves out each third number.
    """

    def __init__(self, log: Log, home: Path, *, checked: bool = True, filters: bool = False) -> None:
        self.log, self.home, self.checked, self.filters, self.now, self.at = (
            log,
            home,
            checked,
            filters,
            1000.0,
            0,
        )
        self.out = log.out
        self.expired = 0
        """The number of oldest records that have expired from the output."""
        self.read_ever: set[int] = set()
        self.receipts: list[Receipt] = []
        streams = cast("Any", log)
        streams.last = lambda _topics, _ends, before: self.out[self.expired :][-before:]
        streams.messages = self._messages
        self.number = 0
        self.restart()

    def _messages(self, _place: str, first: int, end: int) -> Iterator[Any]:
        for offset, number in list(enumerate(self.log.numbers))[first:end]:
            # the number serves as the time of arrival
            yield SimpleNamespace(
                topic=lambda: "raw",
                partition=lambda: 0,
                offset=lambda at=offset: at,
                headers=list,
                timestamp=lambda n=number: (1, n),
            )

    def restart(self) -> None:
        self.number += 1
        tier = Tier(
            "copy",
            Kind.ENTRY,
            (Stream("raw"),),
            lambda raw: raw,
            (Stream("copied", "value string"),),
            filters=self.filters,
        )
        config = EngineConfig(
            session=cast("Any", None),
            tier=tier,
            incarnation=self.number,
            streams=cast("Any", self.log),
            kafka="kafka",
            postgres="postgres",
            home=self.home,
            workers=FakeWorkers(),
            identities=cast("Any", self.log if self.checked else None),
        )
        control = FakeControl()
        control.positions = lambda: [receipt.positions for receipt in self.receipts]
        control.stored_receipts = lambda: self.receipts
        self.gate = FakeStreamsEngine(config, control)
        self.gate._inputs._watch = Watch(self.log if self.checked else None, lambda: self.now)
        self._began(self.gate.run())

    def _began(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)
        self.at = receipt.positions[RAW]

    def read(self, count: int) -> None:
        """Write the next records, whichever leader has them.

        If the log is shorter than the position, the query fails and restarts.
        """
        if self.at > len(self.log.records):
            self._began(self.gate.run())
        for number in self.log.numbers[self.at : self.at + count]:
            self.read_ever.add(number)
            if self.is_left_out(number):
                self.at += 1
                continue
            out = OutputRecord(f"copy/{self.number}", RAW, self.at, 0, self.at)
            self.out.append(Seen(out, number, "copied/0:0", f"0:{self.at}"))
            self.at += 1

    def look(self) -> None:
        """Look once, as the life of an incarnation does: ask Kafka, or read the answer.

        Follow a restart of the query.
        """
        self.now += EVERY_SECONDS
        begun = self.gate._run
        self.gate.check()
        if self.gate._run != begun:
            self.at = self.gate._begins[RAW]
        if positions := self.gate.settled():
            logs = self.gate.logs()
            self.receipts.append(
                Receipt(positions=positions, streams=logs.streams, epochs=logs.epochs, at=0.0)
            )

    def settle(self) -> None:
        """Confirm that all records that were read are out."""
        self.gate._confirmed.take({RAW: self.at})

    def is_left_out(self, number: int) -> bool:
        return self.filters and number % 3 == 0

    def write(self) -> None: ...

    def expire(self) -> None:
        """Let retention remove the output, long after the tier has settled.

        A tier that filters keeps its output, because nothing else could show the difference.
        """
        if not self.filters:
            for _ in LOOKS:
                self.look()
            self.read(1000)
            self.settle()
            for _ in LOOKS:
                self.look()
            self.expired = len(self.out)

    def took(self) -> list[int]:
        """Return the numbers as a reader behind marks sees them: the first record of each
        origin.
        """
        first: dict[int, int] = {}
        for record in self.out:
            first.setdefault(record.out.offset, record.arrived or 0)
        return [number for _, number in sorted(first.items())]


@pytest.fixture(scope="module", autouse=True)
def _without_spark() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(into_streams, "install_guard", lambda _: {})
        patch.setattr(output_tail, "FEW_RECORDS", 4)
        patch.setattr(
            into_streams, "drop_runs", lambda *_, **_more: None
        )  # its thread would remove folders during the test's own removal
        patch.setattr(into_streams, "HandoverWatch", lambda *_: SimpleNamespace(stop=lambda: None))
        patch.setattr(into_streams, "wait_for", lambda *_: None)
        yield


def stopped(tier: IntoTable | IntoStream, log: Log, steps: list[tuple[str, int]]) -> bool:
    """Play the steps and a quiet phase. Return whether the tier stopped with an error."""
    try:
        for step, count in [*steps, *QUIET]:
            match step:
                case "append":
                    log.append(count)
                case "elect":
                    log.elect(count)
                case _:
                    getattr(tier, step)(*([count] if step == "read" else []))
    except RecordsGoneError:
        return True
    return False


@settings(deadline=None, max_examples=200)
@given(STEPS)
@example(
    steps=[("append", 1), ("read", 1), ("elect", 1), ("write", 0)]
)  # the partition is cut back while a batch is read
def test_a_table_has_the_records_of_the_stream_or_its_tier_stopped(steps: list[tuple[str, int]]) -> None:
    log = Log()
    tier = IntoTable(log)
    if stopped(tier, log, steps):
        assert log.gone & set(tier.took()), "the tier must stop only if a record that it read is gone"
    else:
        assert tier.took() == log.numbers


@settings(deadline=None, max_examples=200)
@given(STEPS, st.booleans())
@example(steps=AHEAD, filters=True)  # the records cut off were filtered
@example(
    steps=[("append", 1), ("expire", 0), ("elect", 1), ("append", 2), ("read", 1)], filters=False
)  # the output does not show it
@example(
    steps=[("look", 0), ("elect", 0), ("append", 1), ("read", 1), ("settle", 0)], filters=False
)  # the records are read after the question to Kafka
@example(
    steps=[*AHEAD, ("restart", 0), ("restart", 0)], filters=True
)  # the run ends before it has read again the records that it had read ahead
@example(
    steps=[("append", 10), ("read", 10), ("elect", 3), ("append", 30), ("read", 20)], filters=False
)  # many records are out since
def test_a_stream_is_read_completely_or_its_tier_stopped(steps: list[tuple[str, int]], filters: bool) -> None:
    with tempfile.TemporaryDirectory() as home:
        log = Log()
        tier = IntoStream(log, Path(home), filters=filters)
        if stopped(tier, log, steps):
            assert log.gone & tier.read_ever, "the tier must stop only if a record that it read is gone"
        else:
            assert tier.took() == [number for number in log.numbers if not tier.is_left_out(number)]


def test_offsets_alone_do_not_show_a_cut() -> None:
    steps = [("append", 5), ("read", 5), ("write", 0), ("elect", 3), ("append", 5)]
    with tempfile.TemporaryDirectory() as home:
        for checked in (False, True):
            log, other_log = Log(), Log()
            table, stream = (
                IntoTable(log, checked=checked),
                IntoStream(other_log, Path(home) / str(checked), checked=checked),
            )
            assert (stopped(table, log, steps), stopped(stream, other_log, steps)) == (checked, checked)
            if not checked:
                assert set(log.numbers) - set(table.took()), (
                    "without the check, records must be skipped silently"
                )
                assert set(other_log.numbers) - set(stream.took())


def test_records_read_again_keep_their_former_epoch_until_they_are_out() -> None:
    ids, receipts = Answers(), [Receipt(positions={RAW: 90}, epochs={RAW: 3}, at=0.0)]
    ids.epoch, ids.end = 4, 100
    inputs = SameStreams(Watch(ids), lambda: receipts, "")
    now = inputs.ask([RAW])
    assert inputs.cut({RAW: 130}, now) == {RAW: 100}
    inputs.take(now, {RAW: 130})
    receipts.clear()  # the channel is away
    assert (inputs.logs.epochs, inputs.cut({RAW: 130}, now)) == ({}, {RAW: 100})
    inputs.passed({RAW: 129})
    assert inputs.logs.epochs == {}
    inputs.passed({RAW: 130})
    assert (inputs.logs.epochs, inputs.cut({RAW: 130}, now)) == ({RAW: 4}, {})


def test_epochs_of_another_run_do_not_cover_this_runs_positions() -> None:
    ids, receipts = Answers(), [Receipt(positions={RAW: 90}, epochs={RAW: 3}, at=0.0)]
    inputs = SameStreams(Watch(ids), lambda: receipts, "")
    inputs.take(inputs.ask([RAW]), {})
    ids.epoch, ids.end = 4, 95
    receipts.append(Receipt(positions={RAW: 160}, epochs={RAW: 4}, at=0.0))
    now = inputs.ask([RAW])
    assert (inputs.cut({RAW: 100}, now), inputs.kept()) == ({RAW: 95}, {RAW: 90})
    assert SameStreams(Watch(ids), lambda: receipts, "").kept() == {RAW: 160}, (
        "a run that begins has no positions of its own"
    )


def test_receipts_of_an_older_version_have_no_epochs() -> None:
    ids, receipts = Answers(), [Receipt(positions={RAW: 130}, at=0.0)]
    ids.end = 100
    inputs = SameStreams(Watch(ids), lambda: receipts, "")
    now = inputs.ask([RAW])
    assert (inputs.kept(), inputs.cut({RAW: 130}, now)) == ({}, {}), (
        "receipts from before the upgrade have no epoch"
    )
    inputs.take(now, {})
    assert inputs.logs.epochs == {RAW: 3}, "the epoch is kept from now on"
    receipts.insert(0, Receipt(positions={RAW: 90}, epochs={RAW: 2}, at=0.0))
    assert inputs.kept() == {RAW: 90}, "an older version continued from there"


def test_output_is_compared_by_arrival_time_and_origin() -> None:
    messages = [(7, 70, "0:3"), (8, 80, "0:4")]
    assert is_same({7: [(70, "0:3")], 8: [(80, "0:4:0"), (80, "0:4:1")]}, iter(messages))
    assert not is_same({7: [(71, "0:3")]}, iter(messages)), (
        "the record at this offset arrived at another time"
    )
    assert not is_same({7: [(70, "0:2")]}, iter(messages)), (
        "the record arrived at the same time, under another origin"
    )
    assert not is_same({9: [(90, "0:5")]}, iter(messages)), "the offset has no record"
