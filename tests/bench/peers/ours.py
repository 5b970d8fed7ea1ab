"""Sluice's own chain behind the same face; the bench plays the controller."""

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil
from confluent_kafka import Message

from sluice.api.marks import Marks, first_seen
from sluice_ops.model.incarnation import Phase, State
from tests.bench.peers.system import Deed
from tests.lab import HOSTS, TAKEOVER_SECONDS, Lab

TIERS = ("first", "second", "third")
PLACES = ("h1", "h2")
"""Where the incarnations of the tier in the middle run, in turn."""


class Ours:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._now = 1
        """The incarnation that owns the tier in the middle."""

    def start(self) -> None:
        self._lab.write_class_data()
        for host, tier in zip(HOSTS, TIERS, strict=True):
            self._lab.start_owner(tier, 1, host)
        for tier in TIERS:
            self._lab.wait_for(tier, 1, State.RUNNING)

    def ready(self) -> None:
        self._lab.wait_for("second", self._now, State.RUNNING)
        self._lab.wait_caught_up("second", self._now)

    def moves(self) -> Mapping[str, Deed]:
        return {"overlap": self._move}

    def _move(self) -> float:
        old, new = self._now, self._now + 1
        self._lab.prepare("second", old, new, PLACES[old % 2])
        cut = time.time()
        self._lab.set_owner("second", old, new, Phase.CUT)
        self._lab.wait_caught_up("second", new)
        self._lab.set_owner("second", new)
        self._lab.wait_for("second", old, State.STOPPED)
        self._now = new
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
        begun = time.time()
        self._die()
        time.sleep(TAKEOVER_SECONDS)
        old, self._now = self._now, self._now + 1
        self._lab.start_owner("second", self._now, PLACES[old % 2])
        self.ready()
        self._lab.stop("second", old)
        return begun

    def _kill_standby(self, *, hot: bool) -> float:
        old, standby = self._now, self._now + 1
        self._lab.start_standby("second", old, standby, PLACES[old % 2], hot=hot)
        begun = time.time()
        self._die()
        time.sleep(TAKEOVER_SECONDS)
        self._now = standby
        self._lab.set_owner("second", standby)
        self.ready()
        self._lab.stop("second", old)
        return begun

    def _die(self) -> None:
        driver = self._lab.driver("second", self._now)
        driver.send_signal(signal.SIGKILL)
        driver.wait()

    def _kill_executor(self) -> float:
        begun = time.time()
        self._lab.kill_executor("second", self._now)
        return begun

    def reader(self) -> Callable[[Message], bool]:
        marks: Marks = {}

        def new(message: Message) -> bool:
            headers = {name: value.decode() for name, value in message.headers()}
            return bool(first_seen(marks, [f"{headers['path']}/{message.partition()}"], [headers["origin"]]))

        return new

    def processes(self) -> list[psutil.Process]:
        found = []
        for unit in self._lab.processes.values():
            with suppress(psutil.NoSuchProcess):
                main = psutil.Process(unit.pid)
                found += [main, *main.children(recursive=True)]
        return found

    def stop(self) -> None:
        """Nothing here: the lab ends what it has started."""
