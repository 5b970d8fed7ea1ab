"""A driver's heartbeat, which its agent watches (decision 46), and the watchdog of its
working loop.

Two counters go into the file that SLUICE_HEARTBEAT names. The first grows while this Python process
runs, the second while the JVM answers it.
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
"""Time between two beats."""
LIMITS = LoopLimits(busy=60.0, idle=10.0)
"""Limits of the working loop.

A thread that sleeps, and waits for none of the modules below, hangs.
"""
JVM = ("py4j",)
"""In this module a loop waits for the JVM, which plans or stops a query."""
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
"""In these modules a loop may wait for any time: for a service, for hooks of the tier's author, for
files, or for a Spark job over records that were held back. `task_watchdog` watches that job's
tasks.
"""


class Pulse:
    """Writes the heartbeat from `start` to `stop`."""

    def __init__(self, ping: Callable[[], object]) -> None:
        """Call the JVM by `ping`, which returns while the JVM answers."""
        self._ping = ping
        self._file = os.environ.get("SLUICE_HEARTBEAT")
        self._stop = threading.Event()
        self._watchdog = Watchdog("driver", LIMITS, SERVICES, JVM)
        self._answers = 0

    def start(self) -> None:
        """Begin, and watch the turns of the calling thread."""
        for act, name in ((self._ask, "JVM"), (self._beat, "heartbeat")):
            threading.Thread(target=act, name=name, daemon=True).start()
        self._watchdog.start()

    def stop(self) -> None:
        """End the heartbeat and remove its file, so that the agent does not miss it."""
        self._watchdog.stop()
        self._stop.set()
        if self._file is not None:
            Path(self._file).unlink(missing_ok=True)

    def turn(self) -> None:
        """Note that the loop goes on."""
        self._watchdog.turn()

    def resting(self) -> AbstractContextManager[None]:
        """Suspend the watchdog while the tier stops.

        A batch finishes then; the controller limits that time.
        """
        return self._watchdog.resting()

    def _ask(self) -> None:
        failed = False
        while not self._stop.wait(EVERY_SECONDS):
            try:
                self._ping()
            except Exception as error:  # noqa: BLE001 — the JVM is gone; the loop fails for the same reason
                if not failed:
                    log.warning(
                        "the JVM does not answer the heartbeat; the driver's loop fails for the same reason",
                        error=error_text(error),
                    )
                failed = True
            self._answers += 1

    def _beat(self) -> None:
        beats = 0
        while not self._stop.wait(EVERY_SECONDS):
            beats += 1
            self._write(beats)

    def _write(self, beats: int) -> None:
        """Write both counters; if the disk is full, remove the file, so that the agent does not
        miss the heartbeat.
        """
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
                "the heartbeat file cannot be written and is removed; "
                "the agent does not watch this driver meanwhile",
                file=self._file,
                error=str(error),
            )
            Path(self._file).unlink(missing_ok=True)
        if self._stop.is_set():
            Path(self._file).unlink(missing_ok=True)
