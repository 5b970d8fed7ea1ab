"""A driver's heartbeat, which its agent watches (decision record 0046), and the watchdog of its working loop.

Two counters go into the file that SLUICE_HEARTBEAT names. The first says that this Python runs; the second, that the JVM has answered it.
"""

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import structlog

from sluice.failures import error_text
from sluice_ops.process.watchdog import LoopLimits, Watchdog

log = structlog.get_logger()

EVERY_SECONDS = 0.25
"""Between two beats."""
LIMITS = LoopLimits(busy=60.0, idle=10.0)
"""Of the working loop. One whose thread only sleeps, and for none of what is below, never goes on."""
JVM = ("py4j",)
"""A loop in it waits for the JVM, which plans or stops a query."""
SERVICES = (
    "psycopg",
    "kazoo",
    "confluent_kafka",
    "boto3",
    "botocore",
    "sluice.kafka.reader",
    "sluice.kafka.stream_identity",
    "sluice.driver.control.write_fence",
    "sluice.driver.state.hook_state",
    "sluice.driver.state.checkpoint_store",
    "sluice.driver.engine.stateful",
    "sluice.sinks.archive",
    "pyspark.sql.readwriter",
)
"""A loop in one of these waits for a service, for the hooks of the tier's author, for files, or for a job of Spark's over what was held
back, whose tasks `task_watchdog` watches: that may take as long as it takes."""


class Pulse:
    """Beats from `start` to `stop`."""

    def __init__(self, ping: Callable[[], object]) -> None:
        """Beat for as long as `ping`, a call of the JVM, returns."""
        self._ping = ping
        self._file = os.environ.get("SLUICE_HEARTBEAT")
        self._stop = threading.Event()
        self._watchdog = Watchdog("driver", LIMITS, SERVICES, JVM)
        self._answers = 0

    def start(self) -> None:
        """Begin; the calling thread is the one whose turns are watched."""
        for act, name in ((self._ask, "JVM"), (self._beat, "heartbeat")):
            threading.Thread(target=act, name=name, daemon=True).start()
        self._watchdog.start()

    def stop(self) -> None:
        """Beat no more, and have nobody miss it."""
        self._watchdog.stop()
        self._stop.set()
        if self._file is not None:
            Path(self._file).unlink(missing_ok=True)

    def turn(self) -> None:
        """Say that the loop goes on."""
        self._watchdog.turn()

    def resting(self) -> AbstractContextManager[None]:
        """Have the loop's turns not missed while it stops the tier: a batch is let through, and the controller counts that time."""
        return self._watchdog.resting()

    def _ask(self) -> None:
        failed = False
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self._ping()
            except Exception as error:  # noqa: BLE001 — of a JVM that is gone; the loop fails of the same
                if not failed:
                    log.warning("the JVM cannot be asked whether it is alive", error=error_text(error))
                failed = True
            self._answers += 1

    def _beat(self) -> None:
        beats = 0
        while not self._stop.wait(EVERY_SECONDS):
            beats += 1
            self._write(beats)

    def _write(self, beats: int) -> None:
        """Count on; where the disk is full there may be no file, and then nobody misses it."""
        if self._file is None:
            return
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.pwrite(file, f"{beats:020d} {self._answers:020d}\n".encode(), 0)
            finally:
                os.close(file)
        except OSError as error:
            log.warning(
                "the heartbeat cannot be written, and the agent does not miss it",
                file=self._file,
                error=str(error),
            )
            Path(self._file).unlink(missing_ok=True)
        if self._stop.is_set():
            Path(self._file).unlink(missing_ok=True)
