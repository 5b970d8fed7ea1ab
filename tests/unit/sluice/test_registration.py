"""What a source leaves in the channel when it starts, runs, stops, fails, and loses its name."""

import os
import socket
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from simulation.memory import MemoryChannel

from sluice.ingest import process, registration
from sluice.ingest.registration import Measured, Registration, new_record
from sluice.ingest.source import SourceError, TakenOverError
from sluice.ingest.source_metrics import QUIET_SECONDS, TROUBLE_SECONDS, Written
from sluice_ops.channel import ChannelAwayError, NotAllowedError
from sluice_ops.model import paths
from sluice_ops.model.source import MOST_FAILURES, SourceFigures, SourceKind, SourceRecord, TakenOver, Trouble

ID = "app@raw"
GONE_PID = 2**22 + 1
"""No process has it."""


class Tree(MemoryChannel):
    """Nodes that outlive the connection of a process, but for ephemeral ones."""

    session, refuses = 1, None

    def __enter__(self):
        self.ephemeral = []
        return self

    def __exit__(self, *_error):
        for path in self.ephemeral:
            if self.exists(path):
                self.delete(path)

    def create(self, path, value, *, ephemeral=False):
        self.put(path, value)
        if ephemeral:
            self.ephemeral.append(path)
        return True

    def put(self, path, value):
        if self.refuses is not None:
            raise self.refuses
        super().put(path, value)


@pytest.fixture
def tree(monkeypatch):
    tree = Tree()
    monkeypatch.setattr(registration, "Channel", lambda *_where: tree)
    monkeypatch.setattr(registration, "TURN_SECONDS", 0.01)
    return tree


class Process:
    """A source of a test, whose counts and trouble the test sets."""

    def __init__(self, **more):
        self.written, self.trouble, self.stop = 0, None, threading.Event()
        self.record = new_record("app", "raw", SourceKind.FILES, "/var/log/app.log")
        where = SimpleNamespace(zookeeper="", credential=lambda _role: None)
        self.registration = Registration(
            where, self.record, self.measure, lambda: self.trouble, self.stop, **more
        )

    def measure(self):
        return Measured(records=self.written, last=None, refused=0, waiting_bytes=7)


def until(check):
    end = time.monotonic() + 5
    while not (result := check()):
        assert time.monotonic() < end
        time.sleep(0.005)
    return result


def value(tree, path, model):
    read = tree.read(path, model)
    return None if read is None else read.value


def record(tree):
    return value(tree, paths.source(ID), SourceRecord)


def is_live(tree):
    return tree.exists(paths.source_live(ID))


def left(tree, **fields):
    """Leave the record of an earlier process."""
    earlier = new_record("app", "raw", SourceKind.FILES, "/var/log/app.log")
    tree.put(paths.source(ID), earlier.model_copy(update={"pid": GONE_PID, **fields}))


def fail(tree, source, error):
    """Run a source until it is registered and fails."""
    source.registration.__enter__()
    until(lambda: is_live(tree))
    source.registration.__exit__(type(error), error, None)


def test_a_source_is_registered_while_it_runs_and_gone_after_a_stop(tree):
    source = Process()
    with source.registration:
        until(lambda: is_live(tree))
        assert record(tree).where == "/var/log/app.log"
        figures = value(tree, paths.source_live(ID), SourceFigures)
        assert (figures.identity, figures.waiting_bytes) == (source.record.identity, 7)
    assert (record(tree), is_live(tree)) == (None, False)


def test_a_source_that_fails_leaves_its_record_with_the_reason(tree):
    message = "Kafka ended the transactions"
    fail(tree, Process(), SourceError(message))
    assert (record(tree).ended, is_live(tree)) == (message, False)


def test_an_error_after_a_signal_is_a_stop(tree):
    source = Process()
    source.stop.set()
    fail(tree, source, SourceError("Kafka has not answered"))
    assert record(tree) is None


def test_a_loop_that_hangs_is_told_before_the_process_ends(tree):
    source = Process()
    with source.registration:
        until(lambda: is_live(tree))
        source.registration.hung()
        assert "one of its loops hung" in record(tree).ended


def test_a_source_that_was_taken_over_says_so_beside_the_new_record(tree):
    first, second = Process(), Process()
    message = "it was taken over by h2, process 7"
    first.registration.__enter__()
    until(lambda: is_live(tree))
    with second.registration:
        until(lambda: record(tree).identity == second.record.identity)
        first.registration.__exit__(TakenOverError, TakenOverError(message), None)
        assert value(tree, paths.source_taken(ID), TakenOver).sentence == message
        assert record(tree).identity == second.record.identity


def test_the_process_after_a_killed_one_counts_the_failure(tree):
    left(tree)
    with Process().registration:
        until(lambda: is_live(tree))
        (failure,) = record(tree).failures
    assert failure.how == "its process was gone, and left no message"


@pytest.mark.parametrize("pid", [GONE_PID, os.getpid()], ids=["gone", "reused"])
def test_a_killed_process_is_known_though_zookeeper_keeps_its_node(tree, pid):
    left(tree, pid=pid)
    tree.put(paths.source_live(ID), SourceFigures(identity="earlier", at=1.0))
    with Process().registration:
        until(lambda: value(tree, paths.source_live(ID), SourceFigures).identity != "earlier")
        assert len(record(tree).failures) == 1


@pytest.mark.parametrize("place", [{"pid": os.getppid()}, {"host": "another"}])
def test_a_process_that_still_runs_elsewhere_has_not_failed(tree, place):
    left(tree, **place)
    tree.put(paths.source_live(ID), SourceFigures(identity="earlier", at=1.0))
    with Process().registration:
        until(lambda: value(tree, paths.source_live(ID), SourceFigures).identity != "earlier")
        assert record(tree).failures == ()


def test_only_the_last_failures_are_kept():
    earlier = new_record("app", "raw", SourceKind.FILES, "x")
    for number in range(MOST_FAILURES + 2):
        earlier = earlier.model_copy(
            update={
                "failures": registration.failures_after(earlier, is_there=False, now=float(number)),
                "ended": f"{number}",
            }
        )
    assert [failure.at for failure in earlier.failures] == [2.0, 3.0, 4.0, 5.0, 6.0]
    assert [failure.how for failure in earlier.failures] == ["1", "2", "3", "4", "5"]


def test_trouble_is_written_at_once_and_taken_back(tree):
    source = Process()
    with source.registration:
        until(lambda: is_live(tree))
        source.trouble = Trouble(since=1.0, sentence="Kafka does not answer")
        until(lambda: record(tree).trouble == source.trouble)
        source.trouble = None
        until(lambda: record(tree).trouble is None)


def test_a_new_session_registers_the_source_again(tree):
    with Process().registration:
        until(lambda: is_live(tree))
        tree.delete(paths.source_live(ID))
        tree.session = 2
        until(lambda: is_live(tree))


@pytest.mark.parametrize("error", [NotAllowedError("not allowed"), ChannelAwayError("away")])
def test_a_source_runs_on_without_its_registration(tree, error):
    tree.refuses = error
    followed = []
    with Process(follow=followed.append).registration:
        until(lambda: len(followed) > 3)
    assert (None in followed) == (type(error) is ChannelAwayError), "a refused process still reads"


def test_records_that_wait_for_kafka_are_trouble_until_kafka_takes_them():
    now = [100.0]
    written = Written(lambda: now[0])
    written.begin()
    now[0] += TROUBLE_SECONDS - 1
    assert written.trouble() is None
    now[0] += 1
    assert written.trouble().sentence == "Kafka does not answer"
    written.refuse("Broker: no rights")
    written.begin()
    written.refuse("Broker: no rights")
    assert written.trouble().sentence == "Broker: no rights"
    now[0] += QUIET_SECONDS + 1
    assert written.trouble() is None, "no client waits any more"
    written.begin()
    assert written.trouble() is not None
    written.add([b"one"])
    assert (written.trouble(), written.refused) == (None, 2)


def test_a_source_whose_loop_hangs_ends_with_a_code_that_starts_it_again():
    program = (
        "import time; from sluice.ingest import process; "
        "process.LIMITS = process.LoopLimits(busy=1.0, idle=1.0); "
        "process.watchdog('source', lambda: print('told', flush=True)).start(); time.sleep(60)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == process.HUNG_EXIT != process.TAKEN_OVER_EXIT
    assert "told" in done.stdout
    assert "the working loop of the source has made no progress" in done.stderr


def test_systemd_is_told_that_the_process_runs(tmp_path, monkeypatch):
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(address)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", address)
        process.tell_systemd()  # without WatchdogSec
        monkeypatch.setenv("WATCHDOG_USEC", "40000")
        process.tell_systemd()
        assert [systemd.recv(100) for _ in range(2)] == [b"WATCHDOG=1"] * 2
