"""Sluice's chain with the interface of a peer; the bench plays the controller."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import cycle

import psutil
from confluent_kafka import Message

from sluice.api.lineage_header import texts
from sluice.api.marks import Marks, first_seen
from sluice_ops.model.incarnation import Phase, State
from tests.bench.peers.system import Deed
from tests.lab import HOSTS, TAKEOVER_SECONDS, Lab

TIERS = ("first", "second", "third")
PLACES = ("h1", "h2")
"""The hosts of the second tier's incarnations, in turn."""


class Ours:
    def __init__(self, lab: Lab, tiers: Sequence[str] = TIERS) -> None:
        self._lab = lab
        self._tiers = tiers
        self._owner = 1
        """The incarnation that owns the second tier."""

    def start(self) -> None:
        for host, tier in zip(cycle(HOSTS), self._tiers, strict=False):
            self._lab.start_owner(tier, 1, host)
        for tier in self._tiers:
            self._lab.wait_for(tier, 1, State.RUNNING)

    def ready(self) -> None:
        self._lab.wait_for("second", self._owner, State.RUNNING)
        self._lab.wait_caught_up("second", self._owner)

    def moves(self) -> Mapping[str, Deed]:
        return {"overlap": self._move}

    def _move(self) -> float:
        old, new = self._owner, self._owner + 1
        self._lab.prepare("second", old, new, PLACES[old % 2])
        cut = time.time()
        self._lab.set_owner("second", old, new, Phase.CUT)
        self._lab.wait_caught_up("second", new)
        self._lab.set_owner("second", new)
        self._lab.wait_for("second", old, State.STOPPED)
        self._owner = new
        self._lab.stop("second", old)
        return cut

    def kills(self) -> Mapping[str, Deed]:
        return {
            "driver": self._kill_driver,
            "driver with a warm standby": lambda: self._kill_standby(hot=False),
            "driver with a hot standby": lambda: self._kill_standby(hot=True),
            "executor": self._kill_executor,
        }

    def _kill_driver(self) -> float:
        killed_at = time.time()
        self._kill_owner()
        time.sleep(TAKEOVER_SECONDS)
        old, self._owner = self._owner, self._owner + 1
        self._lab.start_owner("second", self._owner, PLACES[old % 2])
        self.ready()
        self._lab.stop("second", old)
        return killed_at

    def _kill_standby(self, *, hot: bool) -> float:
        old, standby = self._owner, self._owner + 1
        self._lab.start_standby("second", old, standby, PLACES[old % 2], hot=hot)
        killed_at = time.time()
        self._kill_owner()
        time.sleep(TAKEOVER_SECONDS)
        self._owner = standby
        self._lab.set_owner("second", standby)
        self.ready()
        self._lab.stop("second", old)
        return killed_at

    def _kill_owner(self) -> None:
        driver = self._lab.driver("second", self._owner)
        driver.send_signal(signal.SIGKILL)
        driver.wait()

    def _kill_executor(self) -> float:
        killed_at = time.time()
        self._lab.kill_executor("second", self._owner)
        return killed_at

    def reader(self) -> Callable[[Message], bool]:
        marks: Marks = {}

        def new(message: Message) -> bool:
            headers = texts(message.headers())
            return bool(first_seen(marks, [f"{headers['path']}/{message.partition()}"], [headers["origin"]]))

        return new

    def processes(self) -> list[psutil.Process]:
        found_processes = []
        for unit in self._lab.processes.values():
            with suppress(psutil.NoSuchProcess):
                main = psutil.Process(unit.pid)
                found_processes += [main, *main.children(recursive=True)]
        return found_processes

    def stop(self) -> None:
        self._lab.stop_all()
        self._lab.processes.clear()
